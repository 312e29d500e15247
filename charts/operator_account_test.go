// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/manifest"
)

// T4, T6, M4: under the rights of the chart, the operator applies the values' tenants, writes their spaces and what it published, and
// takes over no space of somebody else.
func TestTheOperatorsAccountWritesWhatTenantsNeed(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	operator := r.as("system:serviceaccount:platform:berth-operator")
	values := []string{"tenants.acme.owners[0].kind=User", "tenants.acme.owners[0].name=alice", "configuration.maxTreeDepth=4"}
	written := find(t, renderIn(t, "platform", values...), func(c *corev1.ConfigMap) bool { return c.Data["objects.yaml"] != "" })
	objects, err := manifest.Read([]byte(written.Data["objects.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for range 2 {
		if err := manifest.Apply(limited, operator, objects); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	tenant, configuration := &v1alpha1.Tenant{ObjectMeta: named("acme")}, &v1alpha1.BerthConfiguration{ObjectMeta: named("berth")}
	for _, o := range []client.Object{tenant, configuration} {
		if err := operator.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}
	if len(tenant.Spec.Owners) != 1 || configuration.Spec.MaxTreeDepth == nil || *configuration.Spec.MaxTreeDepth != 4 || configuration.Spec.DefaultTenantName != "default" {
		t.Errorf("the tenant is %+v, the configuration %+v", tenant.Spec, configuration.Spec)
	}
	// A field that is gone from the values is gone from the object.
	without, err := manifest.Read([]byte("{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {private: true}}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Apply(limited, operator, without); err != nil {
		t.Fatal(err)
	}
	if err := operator.Get(ctx, client.ObjectKeyFromObject(tenant), tenant); err != nil || len(tenant.Spec.Owners) > 0 {
		t.Errorf("owners are still %v (%v)", tenant.Spec.Owners, err)
	}
	bad, err := manifest.Read([]byte("{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: a.b}}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := manifest.Apply(limited, operator, bad); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "apply Tenant a.b: ") {
		t.Errorf("an invalid tenant: %v", err)
	}

	space := &v1alpha1.Space{ObjectMeta: named("acme"), Spec: v1alpha1.SpaceSpec{TenantName: "acme"}}
	published := &v1alpha1.PublishedObject{ObjectMeta: named("p")}
	published.Spec.Object.Raw = []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "berth-operator"}}
	event := func(namespace string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "e"},
			InvolvedObject: corev1.ObjectReference{Kind: "Tenant", Name: "acme", Namespace: namespace},
		}
	}
	for _, o := range []client.Object{space, published, lease, event("platform"), event("default")} {
		if err := operator.Create(ctx, o); err != nil {
			t.Errorf("create %T: %v", o, err)
		}
	}
	tenant.Status.State = v1alpha1.TenantActive
	if err := operator.Status().Update(ctx, tenant); err != nil {
		t.Errorf("status: %v", err)
	}
	if err := r.berth.Get(ctx, client.ObjectKeyFromObject(published), published); err != nil {
		t.Errorf("Berth can't read what is published: %v", err)
	}
	if err := r.berth.Update(ctx, published); !apierrors.IsForbidden(err) {
		t.Errorf("Berth writes what is published: %v", err)
	}
	if err := r.berth.Update(ctx, tenant); !apierrors.IsForbidden(err) {
		t.Errorf("Berth writes a tenant: %v", err)
	}
	if err := operator.Delete(ctx, space); err != nil {
		t.Errorf("delete a space of a tenant: %v", err)
	}

	if err := operator.List(ctx, &v1alpha1.SharedObjectList{}); err != nil {
		t.Errorf("read what tenants share: %v", err)
	}
	if err := r.berth.List(ctx, &v1alpha1.SharedObjectList{}); !apierrors.IsForbidden(err) {
		t.Errorf("Berth reads what tenants share: %v", err)
	}

	r.eventually(t, "the host does not hold the operator to its policy", func(ctx context.Context) bool {
		return apierrors.IsForbidden(operator.Create(ctx, &v1alpha1.Space{ObjectMeta: named("free")}, client.DryRunAll))
	})
	foreign := &v1alpha1.Space{ObjectMeta: named("foreign")}
	if err := r.admin.Create(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	taken := foreign.DeepCopy()
	taken.Spec.TenantName = "acme"
	for what, err := range map[string]error{
		"take over a space": operator.Update(ctx, taken), "delete a space": operator.Delete(ctx, foreign),
		"make one without a tenant": operator.Create(ctx, &v1alpha1.Space{ObjectMeta: named("free")}),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only spaces that belong to a tenant") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"read Secrets": operator.List(ctx, &corev1.SecretList{}), "list pods": operator.List(ctx, &corev1.PodList{}),
		"write a ConfigMap": operator.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "a"}}),
		"its own role":      operator.Create(ctx, classBinding("berth-operator", "", "cluster-admin", "platform")),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", what, err)
		}
	}
}
