// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// LabelBudget is on the host pods that a disruption budget of the tenant's
// selects: the name of the budget's host object. A pod has one at most, as a
// host would evict none that is under two.
const LabelBudget = Domain + "/budget"

// Budget is v's host object, for so many pods as there are on the host. A drain
// of the host must come to its end: at least one pod may always be evicted, and
// any that is not ready. The number is worked out in the space, where the pods'
// controllers are; the tenant may write it as it likes, and not beyond the bound.
func (s Space) Budget(v *policyv1.PodDisruptionBudget, pods int) *policyv1.PodDisruptionBudget {
	least := max(0, min(int(v.Status.DesiredHealthy), pods-1))
	meta := s.ObjectMeta(v, LimitLabel)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			// Percentages and maxUnavailable are of controllers that the host does not have.
			MinAvailable:               ptr.To(intstr.FromInt32(int32(least))), // not above DesiredHealthy
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{LabelSpace: s.Name, LabelBudget: meta.Name}},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// PushBudget copies onto have what Berth says of a budget.
func PushBudget(want, have *policyv1.PodDisruptionBudget) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
		have.Spec, changed = *want.Spec.DeepCopy(), true
	}
	return changed
}

// AddBudget marks a host pod as under the first, by name, of the budgets of v's
// namespace that select v.
func (s Space) AddBudget(host *metav1.ObjectMeta, v *corev1.Pod, budgets []*policyv1.PodDisruptionBudget) {
	var first *policyv1.PodDisruptionBudget
	for _, b := range budgets {
		if b.Namespace != v.Namespace || !selects(b.Spec.Selector, v.Labels) {
			continue
		}
		if first == nil || strings.Compare(b.Name, first.Name) < 0 {
			first = b
		}
	}
	if first != nil {
		host.Labels[LabelBudget] = s.HostName(first.Namespace, first.Name, LimitLabel)
	}
}
