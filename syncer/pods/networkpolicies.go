// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncNetworkPolicies syncs policies to the host. They restrict pods only by labels on the host pods; see
// translate.LabelPolicedIngress.
func (s *Syncer) syncNetworkPolicies() error {
	policies := s.Informers.Networking().V1().NetworkPolicies()
	namespaces := s.Informers.Core().V1().Namespaces()
	engine.Add(&engine.Resource[*networkingv1.NetworkPolicy]{
		Engine: s.Engine, Name: resources.NetworkPolicies, NameLimit: translate.LimitSubdomain,
		Virtual: policies.Informer(),
		ToHost: func(_ context.Context, v *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool, error) {
			all, err := namespaces.Lister().List(labels.Everything())
			if err != nil {
				return nil, false, err
			}
			host, without := s.Space.NetworkPolicy(v, all)
			if len(without) > 0 { // the rest of it is in force
				s.Recorder.Record(v, corev1.EventTypeWarning, engine.ReasonForbids, without.ToAggregate().Error())
			}
			return host, true, nil
		},
		UpdateHost:       translate.PushNetworkPolicy,
		ConcernsNoOthers: func(was, is *networkingv1.NetworkPolicy) bool { return was.Generation == is.Generation },
	}, func(v *networkingv1.NetworkPolicy, enqueue func(engine.Key)) { s.enqueuePods(v.Namespace, enqueue) })
	// What a namespace selector matches depends on the labels of namespaces.
	s.FromChanges(namespaces.Informer(), func(was, is client.Object, enqueue func(engine.Key)) {
		if was != nil && maps.Equal(was.GetLabels(), is.GetLabels()) && was.GetUID() == is.GetUID() {
			return
		}
		all, err := policies.Lister().List(labels.Everything())
		if err != nil {
			return
		}
		for _, policy := range all {
			if translate.SelectsNamespaces(policy) {
				enqueue(engine.Key{Resource: resources.NetworkPolicies, NamespacedName: client.ObjectKeyFromObject(policy)})
			}
		}
	})
	return nil
}
