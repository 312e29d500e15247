// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Config maps and secrets of a space are read when something refers to them. They are not cached, because a tenant can
// create any number of them.

func (s *Syncer) syncConfigMaps() error {
	used := s.UsedBy(resources.ConfigMaps, engine.IndexConfigMaps)
	engine.AddToHost(&engine.Resource[*corev1.ConfigMap]{
		Engine: s.Engine, Name: resources.ConfigMaps, NameLimit: translate.LimitSubdomain,
		IsUsed: used.Contains,
		ToHost: func(_ context.Context, v *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			return s.Space.ConfigMap(v), true, nil
		},
		UpdateHost: func(want, have *corev1.ConfigMap) bool {
			hostcache.RecallConfigMap(want, have)
			return translate.PushConfigMap(want, have)
		},
	})
	s.FromNames(resources.ConfigMaps, used)
	return nil
}

func (s *Syncer) syncSecrets() error {
	var also []cache.SharedIndexInformer
	if s.Sync.On(resources.Ingresses) {
		also = append(also, s.Informers.Networking().V1().Ingresses().Informer())
	}
	if s.Sync.On(resources.Gateways) {
		informer, err := s.FromExtension(resources.Gateways)
		if err != nil {
			return err
		}
		also = append(also, informer)
	}
	used := s.UsedBy(resources.Secrets, engine.IndexSecrets, also...)
	used.Settled = func() bool { return s.Settled(resources.Gateways) }
	engine.AddToHost(&engine.Resource[*corev1.Secret]{
		Engine: s.Engine, Name: resources.Secrets, NameLimit: translate.LimitSubdomain,
		IsUsed: used.Contains,
		ToHost: func(_ context.Context, v *corev1.Secret) (*corev1.Secret, bool, error) {
			return s.Space.Secret(v), true, nil
		},
		UpdateHost: func(want, have *corev1.Secret) bool {
			hostcache.RecallSecret(want, have)
			return translate.PushSecret(want, have)
		},
		OwnerOf: s.tokensOf,
	})
	s.FromNames(resources.Secrets, used)
	return nil
}
