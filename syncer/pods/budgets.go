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

// syncBudgets syncs disruption budgets, within limits, so that drains of the host's nodes respect them. Evictions in
// the space respect them without this.
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

// podsUnder counts the pods of the space on the host that a budget selects. The tenant can't change what is counted.
func (s *Syncer) podsUnder(budget string) int {
	return len(hostcache.Find[*corev1.Pod](s.Host, resources.Pods, hostcache.IndexBudget, s.Space.HostNamespace()+"/"+budget))
}

// enqueueBudgets enqueues the budgets that select a host pod, or may have selected it before it changed. It runs in the
// watch that all spaces share. So it uses the budgets on the host, whose number is limited, and not those in the space.
func (s *Syncer) enqueueBudgets(pod *corev1.Pod, enqueue func(engine.Key)) {
	for _, namespace := range hostcache.VirtualNamespace(pod) {
		for _, budget := range hostcache.Find[*policyv1.PodDisruptionBudget](s.Host, resources.Budgets, hostcache.IndexNamespace, namespace) {
			if key, ok := engine.KeyOf(resources.Budgets, budget); ok {
				enqueue(key)
			}
		}
	}
}
