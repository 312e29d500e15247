// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// enqueueBudgets looks again at the budgets that a host pod may be under.
func (s *Syncer) enqueueBudgets(host *corev1.Pod, enqueue func(Key)) {
	if !s.host.sync.On(budgets) || host.Labels[translate.LabelBudget] == "" {
		return
	}
	all, err := s.informers.Policy().V1().PodDisruptionBudgets().Lister().
		PodDisruptionBudgets(host.Labels[translate.LabelNamespace]).List(labels.Everything())
	if err != nil {
		return
	}
	for _, budget := range all {
		enqueue(Key{Kind: budgets, NamespacedName: client.ObjectKeyFromObject(budget)})
	}
}
