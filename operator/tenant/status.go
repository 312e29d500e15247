// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1ac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// The definition of Tenant limits lists of its status.
const (
	maxSpaces, maxNamespaces, maxResources = 100, 500, 200
	// maxMessage is shorter than what a condition may have.
	maxMessage = 4096
)

func readyCondition(tenant *v1alpha1.Tenant) *metav1.Condition {
	return meta.FindStatusCondition(tenant.Status.Conditions, v1alpha1.ConditionReady)
}

// writeStatus writes the status if it has changed.
func (one *run) writeStatus(ctx context.Context) error {
	want := one.observe()
	have := one.tenant.Status
	have.Conditions = nil
	before := readyCondition(one.tenant)
	if before != nil {
		have.Conditions = []metav1.Condition{*before}
	}
	if equality.Semantic.DeepEqual(have, want) {
		return nil
	}
	status := &v1alpha1ac.TenantStatusApplyConfiguration{}
	if err := convert(want, status); err != nil {
		return err
	}
	apply := v1alpha1ac.Tenant(one.tenant.Name).WithUID(one.tenant.UID).WithStatus(status)
	if err := one.client.Status().Apply(ctx, apply, fieldOwner, client.ForceOwnership); err != nil {
		return client.IgnoreNotFound(err)
	}
	one.report(before, &want.Conditions[0])
	return nil
}

// report emits an event if Ready is for another reason than before.
func (one *run) report(before, after *metav1.Condition) {
	if before != nil && before.Reason == after.Reason && (before.Message == after.Message || one.problem == nil) {
		return
	}
	kind := corev1.EventTypeNormal
	if one.problem != nil && after.Reason != v1alpha1.ReasonDeleting {
		kind = corev1.EventTypeWarning
	}
	one.events.Eventf(one.tenant, nil, kind, after.Reason, "Reconcile", "%s", after.Message)
}

// observe returns the status as it should be.
func (one *run) observe() v1alpha1.TenantStatus {
	status := v1alpha1.TenantStatus{ObservedGeneration: one.tenant.Generation, Owners: one.tenant.Status.Owners, Children: ptr.To(int32(len(one.children)))}
	if one.rights != nil {
		status.Owners = nil
		for _, owner := range one.rights.Owners {
			status.Owners = append(status.Owners, v1alpha1.OwnerStatus{
				Kind: owner.Kind, Name: owner.Name, ClusterRoles: owner.ClusterRoles, InheritedFrom: owner.InheritedFrom,
			})
		}
	}
	one.countSpaces(&status)
	one.sumUsage(&status)
	ready := one.ready(&status)
	if before := readyCondition(one.tenant); before != nil {
		status.Conditions = []metav1.Condition{*before}
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

// ready sets the state, and returns the condition.
func (one *run) ready(status *v1alpha1.TenantStatus) metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonActive, ObservedGeneration: one.tenant.Generation,
		Message: fmt.Sprintf("all spaces are ready: %s", status.Summary.Spaces),
	}
	status.State = v1alpha1.TenantActive
	if ptr.Deref(one.tenant.Spec.Cordoned, false) {
		status.State = v1alpha1.TenantCordoned
	}
	waiting := one.notReady()
	switch {
	case one.problem != nil:
		status.State = one.problem.state
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, one.problem.reason, one.problem.message
	case one.deleting():
		status.State = v1alpha1.TenantDeleting
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonDeleting, "the tenant is being deleted"
	case !one.tenant.DeletionTimestamp.IsZero():
		ready.Status, ready.Reason = metav1.ConditionFalse, v1alpha1.ReasonDeleting
		ready.Message = fmt.Sprintf("the tenant %s always exists, so that its spaces stay, although it was deleted", one.tenant.Name)
	case waiting != "":
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonSpacesNotReady, waiting
	}
	if len(ready.Message) > maxMessage {
		ready.Message = ready.Message[:maxMessage] + " ..."
	}
	return ready
}

// notReady returns which spaces are not ready, and why.
func (one *run) notReady() string {
	var waiting []v1alpha1.Space
	for _, space := range one.spaces {
		if !isReady(&space) {
			waiting = append(waiting, space)
		}
	}
	if len(waiting) == 0 {
		return ""
	}
	return "not ready: " + nameList(waiting, func(s *v1alpha1.Space) string {
		ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case !s.DeletionTimestamp.IsZero():
			return s.Name + " (it is being deleted)"
		case ready == nil:
			return fmt.Sprintf("%s (no platform %s has served it yet)", s.Name, s.Spec.PlatformName)
		default:
			return fmt.Sprintf("%s (%s)", s.Name, ready.Message)
		}
	})
}

func isReady(space *v1alpha1.Space) bool {
	return space.DeletionTimestamp.IsZero() && meta.IsStatusConditionTrue(space.Status.Conditions, v1alpha1.ConditionReady)
}
