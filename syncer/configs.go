// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Config maps and secrets of a space are read when something refers to them, and
// are not held: a tenant can make any number of them.

func (s *podSyncer) syncConfigMaps() error {
	used := s.usedBy(resources.ConfigMaps, indexConfigMaps)
	addToHost(&syncedResource[*corev1.ConfigMap]{
		Engine: s.Engine, name: resources.ConfigMaps, nameLimit: translate.LimitSubdomain,
		newObject: func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		isUsed:    used.contains,
		toHost: func(_ context.Context, v *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return s.space.ConfigMap(v), true, nil
		},
		updateHost: func(want, have *corev1.ConfigMap) bool {
			hostcache.RecallConfigMap(want, have)
			return translate.PushConfigMap(want, have)
		},
	})
	s.fromNames(resources.ConfigMaps, used)
	return nil
}

func (s *podSyncer) syncSecrets() error {
	var also []cache.SharedIndexInformer
	if s.host.Sync.On(resources.Ingresses) {
		also = append(also, s.informers.Networking().V1().Ingresses().Informer())
	}
	if s.host.Sync.On(resources.Gateways) {
		informer, err := s.fromExtension(resources.Gateways)
		if err != nil {
			return err
		}
		also = append(also, informer)
	}
	used := s.usedBy(resources.Secrets, indexSecrets, also...)
	used.settled = func() bool { return s.settled(resources.Gateways) }
	addToHost(&syncedResource[*corev1.Secret]{
		Engine: s.Engine, name: resources.Secrets, nameLimit: translate.LimitSubdomain,
		newObject: func() *corev1.Secret { return &corev1.Secret{} },
		isUsed:    used.contains,
		toHost: func(_ context.Context, v *corev1.Secret) (*corev1.Secret, bool, error) {
			return s.space.Secret(v), true, nil
		},
		updateHost: func(want, have *corev1.Secret) bool {
			hostcache.RecallSecret(want, have)
			return translate.PushSecret(want, have)
		},
		ownerOf: s.tokensOf,
	})
	s.fromNames(resources.Secrets, used)
	return nil
}
