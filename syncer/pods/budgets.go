// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncBudgets lets drains of the host heed a space's disruption budgets, within
// bounds. Evictions in the space heed them at any rate.
func (s *Syncer) syncBudgets() error {
	engine.Add(&engine.Resource[*policyv1.PodDisruptionBudget]{
		Engine: s.Engine, Name: resources.Budgets, NameLimit: translate.LimitLabel,
		Virtual: s.Informers.Policy().V1().PodDisruptionBudgets().Informer(),
		ToHost: func(_ context.Context, v *policyv1.PodDisruptionBudget) (*policyv1.PodDisruptionBudget, bool, error) {
			return s.Space.Budget(v, s.podsUnder(s.Space.HostName(v.Namespace, v.Name, translate.LimitLabel))), true, nil
		},
		UpdateHost:       translate.PushBudget,
		ConcernsNoOthers: func(was, is *policyv1.PodDisruptionBudget) bool { return was.Generation == is.Generation },
	}, func(v *policyv1.PodDisruptionBudget, enqueue func(engine.Key)) { s.enqueuePods(v.Namespace, enqueue) })
	return nil
}

// podsUnder counts the space's pods on the host that are under a budget, as the
// tenant can't.
func (s *Syncer) podsUnder(budget string) int {
	return len(hostcache.Find[*corev1.Pod](s.Host, resources.Pods, hostcache.IndexBudget, s.Space.HostNamespace()+"/"+budget))
}

// enqueueBudgets looks again at the budgets that a host pod may be, or may have
// been, under: a pod that comes under another one leaves one behind. It takes
// time of the watch of all spaces' pods, so it goes by what the host has of them,
// which is bounded, unlike what a tenant has in its space.
func (s *Syncer) enqueueBudgets(pod *corev1.Pod, enqueue func(engine.Key)) {
	for _, namespace := range hostcache.VirtualNamespace(pod) {
		for _, budget := range hostcache.Find[*policyv1.PodDisruptionBudget](s.Host, resources.Budgets, hostcache.IndexNamespace, namespace) {
			if key, ok := engine.KeyOf(resources.Budgets, budget); ok {
				enqueue(key)
			}
		}
	}
}
