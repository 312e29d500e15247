// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/berth-dev/berth/translate"
)

// syncBudgets lets drains of the host heed a space's disruption budgets, within
// bounds. Evictions in the space heed them at any rate.
func (s *Syncer) syncBudgets() error {
	add(&kind[*policyv1.PodDisruptionBudget]{
		Syncer: s, name: budgets, limit: translate.LimitLabel,
		fresh:   func() *policyv1.PodDisruptionBudget { return &policyv1.PodDisruptionBudget{} },
		virtual: s.informers.Policy().V1().PodDisruptionBudgets().Informer(),
		down: func(_ context.Context, v *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudget, bool, error) {
			return s.space.Budget(v, s.podsUnder(s.space.HostName(v.Namespace, v.Name, translate.LimitLabel))), true, nil
		},
		push: translate.PushBudget,
	}, func(v *policyv1.PodDisruptionBudget, enqueue func(Key)) { s.enqueuePods(v.Namespace, enqueue) })
	return nil
}

// podsUnder counts the space's pods on the host that are under a budget, as the
// tenant can't.
func (s *Syncer) podsUnder(budget string) (n int) {
	for pod := range hosted[*corev1.Pod](s, pods) {
		if pod.Labels[translate.LabelBudget] == budget && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			n++
		}
	}
	return n
}

// enqueueBudgets looks again at the budgets that a host pod may be, or may have
// been, under: a pod that comes under another one leaves one behind. It takes
// time of the watch of all spaces' pods, so it goes by what the host has of them,
// which is bounded, unlike what a tenant has in its space.
func (s *Syncer) enqueueBudgets(pod *corev1.Pod, enqueue func(Key)) {
	for budget := range hosted[*policyv1.PodDisruptionBudget](s, budgets) {
		if budget.Labels[translate.LabelNamespace] != pod.Labels[translate.LabelNamespace] {
			continue
		}
		if key, ok := keyOf(budgets, budget); ok {
			enqueue(key)
		}
	}
}
