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

// LabelBudget on a host pod is the name of the host object of the disruption budget that selects the pod. A pod has at
// most one, because a host evicts no pod that two budgets select.
const LabelBudget = Domain + "/budget"

// Budget returns v's host object if it selects this number of pods on the host. A drain of the host's nodes must not be
// blocked: at least one pod may always be evicted, and so may pods that are not ready. The number is computed in the
// space, where the pods' controllers are. The tenant may set any number, but the host object respects the limit.
func (s Space) Budget(v *policyv1.PodDisruptionBudget, pods int) *policyv1.PodDisruptionBudget {
	least := max(0, min(int(v.Status.DesiredHealthy), pods-1))
	meta := s.ObjectMeta(v, LimitLabel)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: meta,
		Spec: policyv1.PodDisruptionBudgetSpec{
			// Percentages and maxUnavailable depend on controllers that are not on the host.
			MinAvailable:               ptr.To(intstr.FromInt32(int32(least))), // at most DesiredHealthy
			Selector:                   &metav1.LabelSelector{MatchLabels: map[string]string{LabelSpace: s.Name, LabelBudget: meta.Name}},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// PushBudget copies what Berth sets in a budget to have. It reports whether anything differed.
func PushBudget(want, have *policyv1.PodDisruptionBudget) bool {
	changed := PushMeta(want, have)
	if !equality.Semantic.DeepEqual(want.Spec, have.Spec) {
		have.Spec, changed = *want.Spec.DeepCopy(), true
	}
	return changed
}

// AddBudget labels a host pod with a budget of v's namespace that selects v. If there are several, it uses the first by
// name.
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
