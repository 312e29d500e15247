// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// syncNetworkPolicies takes policies down. That they take anything away is the
// doing of labels on the host pods, see translate.LabelPolicedIngress.
func (s *Syncer) syncNetworkPolicies() error {
	policies := s.informers.Networking().V1().NetworkPolicies()
	namespaces := s.informers.Core().V1().Namespaces()
	add(&kind[*networkingv1.NetworkPolicy]{
		Syncer: s, name: networkPolicies, limit: translate.LimitSubdomain,
		fresh:   func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
		virtual: policies.Informer(),
		down: func(_ context.Context, v *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool, error) {
			all, err := namespaces.Lister().List(labels.Everything())
			if err != nil {
				return nil, false, err
			}
			host, without := s.space.NetworkPolicy(v, all)
			if len(without) > 0 { // the rest of it holds
				s.teller.tell(v, corev1.EventTypeWarning, ReasonForbids, without.ToAggregate().Error())
			}
			return host, true, nil
		},
		push: translate.PushNetworkPolicy,
	}, func(v *networkingv1.NetworkPolicy, enqueue func(Key)) { s.enqueuePods(v.Namespace, enqueue) })
	// What a namespace selector selects depends on the namespaces' labels.
	s.fromSpace(namespaces.Informer(), func(_ client.Object, enqueue func(Key)) {
		all, err := policies.Lister().List(labels.Everything())
		if err != nil {
			return
		}
		for _, policy := range all {
			if translate.SelectsNamespaces(policy) {
				enqueue(Key{Kind: networkPolicies, NamespacedName: client.ObjectKeyFromObject(policy)})
			}
		}
	})
	return nil
}

// enqueuePods looks again at all pods of a namespace.
func (s *Syncer) enqueuePods(namespace string, enqueue func(Key)) {
	if !s.host.sync.On(pods) {
		return
	}
	all, err := s.informers.Core().V1().Pods().Lister().Pods(namespace).List(labels.Everything())
	if err != nil {
		return
	}
	for _, pod := range all {
		enqueue(Key{Kind: pods, NamespacedName: client.ObjectKeyFromObject(pod)})
	}
}
