// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1ac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// X6: an admin's manifest and a tool each own what they apply: single limits, resources of sync, and entries of quota.
// What one of them no longer applies is removed, and what the other applies stays.
func TestFieldManagersOwnPartsOfASpace(t *testing.T) {
	c := hostClient(t)
	t.Cleanup(func() { remove(t, c, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "applied"}}) })
	const admin, tool = client.FieldOwner("admin"), client.FieldOwner("tool")
	quantity := resource.MustParse
	option := func(resource, value string) *v1alpha1ac.SyncOptionApplyConfiguration {
		return v1alpha1ac.SyncOption().WithResource(resource).WithValue(value)
	}
	apply := func(owner client.FieldOwner, spec *v1alpha1ac.SpaceSpecApplyConfiguration) error {
		return c.Apply(t.Context(), v1alpha1ac.Space("applied").WithSpec(spec), owner)
	}
	stored := func() *v1alpha1.Space {
		t.Helper()
		space := &v1alpha1.Space{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: "applied"}, space); err != nil {
			t.Fatal(err)
		}
		return space
	}

	if err := apply(admin, v1alpha1ac.SpaceSpec().
		WithIsolation(v1alpha1.Dedicated).
		WithLimits(map[string]resource.Quantity{"watches": quantity("500"), "objects": quantity("10k")}).
		WithQuota(map[corev1.ResourceName]resource.Quantity{"limits.cpu": quantity("8")}).
		WithSync(option("ingresses", "off"), option("secrets", "all"))); err != nil {
		t.Fatal(err)
	}
	if err := apply(tool, v1alpha1ac.SpaceSpec().
		WithLimits(map[string]resource.Quantity{"store-bytes": quantity("1Gi")}).
		WithQuota(map[corev1.ResourceName]resource.Quantity{"pods": quantity("100")}).
		WithSync(option("configmaps", "all"))); err != nil {
		t.Fatal(err)
	}
	if err := apply(admin, v1alpha1ac.SpaceSpec().
		WithIsolation(v1alpha1.Dedicated).
		WithLimits(map[string]resource.Quantity{"watches": quantity("600")}).
		WithSync(option("secrets", "all"))); err != nil {
		t.Fatal(err)
	}
	space := stored()
	want := v1alpha1.SpaceSpec{
		Isolation: v1alpha1.Dedicated,
		Limits:    map[string]resource.Quantity{"watches": quantity("600"), "store-bytes": quantity("1Gi")},
		Quota:     map[corev1.ResourceName]resource.Quantity{"pods": quantity("100")},
		Sync:      []v1alpha1.SyncOption{{Resource: "secrets", Value: "all"}, {Resource: "configmaps", Value: "all"}},
	}
	got := v1alpha1.SpaceSpec{Isolation: space.Spec.Isolation, Limits: space.Spec.Limits, Quota: space.Spec.Quota, Sync: space.Spec.Sync}
	byResource := cmpopts.SortSlices(func(a, b v1alpha1.SyncOption) bool { return a.Resource < b.Resource })
	if diff := cmp.Diff(want, got, byResource); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	// What another manager owns is changed by nobody else unless it says so.
	err := apply(tool, v1alpha1ac.SpaceSpec().WithIsolation(v1alpha1.Shared))
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `"admin"`) || !strings.Contains(err.Error(), ".spec.isolation") {
		t.Errorf("the tool set isolation and got %v", err)
	}
	owned, err := v1alpha1ac.ExtractSpace(space, string(tool))
	if err != nil {
		t.Fatal(err)
	}
	if owned.Spec.Isolation != nil || len(owned.Spec.Limits) != 1 || len(owned.Spec.Sync) != 1 {
		t.Errorf("the tool owns %+v", owned.Spec)
	}
}

// X6: controllers own a condition each, and what one of them writes leaves the other's, and the spec, as it is.
func TestFieldManagersOwnConditionsOfASpace(t *testing.T) {
	c := hostClient(t)
	t.Cleanup(func() { remove(t, c, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "observed"}}) })
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "observed"}}
	if err := c.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	write := func(owner client.FieldOwner, kind string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		condition := metav1ac.Condition().WithType(kind).WithStatus(status).WithReason(reason).WithMessage("").WithLastTransitionTime(metav1.Now())
		observed := v1alpha1ac.Space("observed").WithStatus(v1alpha1ac.SpaceStatus().WithConditions(condition))
		if err := c.Status().Apply(t.Context(), observed, owner); err != nil {
			t.Fatal(err)
		}
	}
	write("platform", v1alpha1.ConditionReady, metav1.ConditionFalse, string(v1alpha1.SpaceStarting))
	write("syncer", v1alpha1.ConditionSynced, metav1.ConditionTrue, v1alpha1.ReasonSynced)
	write("platform", v1alpha1.ConditionReady, metav1.ConditionTrue, string(v1alpha1.SpaceRunning))
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(space), space); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, condition := range space.Status.Conditions {
		got[condition.Type] = condition.Reason
	}
	if diff := cmp.Diff(map[string]string{"Ready": "Running", "Synced": "Synced"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if space.Generation != 1 || space.Spec.Isolation != v1alpha1.Shared {
		t.Errorf("writing the status changed the spec: generation %d, %+v", space.Generation, space.Spec)
	}
}
