// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate"
)

func (s *Syncer) syncConfigMaps() error {
	add(&kind[*corev1.ConfigMap]{
		Syncer: s, name: configMaps, limit: translate.LimitSubdomain,
		fresh:   func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
		virtual: s.informers.Core().V1().ConfigMaps().Informer(),
		down: func(_ context.Context, v *corev1.ConfigMap) (*corev1.ConfigMap, bool, error) {
			used, err := s.inUse(indexConfigMaps, v)
			return s.space.ConfigMap(v), used, err
		},
		push: translate.PushConfigMap,
	}, nil)
	return nil
}

func (s *Syncer) syncSecrets() error {
	add(&kind[*corev1.Secret]{
		Syncer: s, name: secrets, limit: translate.LimitSubdomain,
		fresh:   func() *corev1.Secret { return &corev1.Secret{} },
		virtual: s.informers.Core().V1().Secrets().Informer(),
		down: func(_ context.Context, v *corev1.Secret) (*corev1.Secret, bool, error) {
			used, err := s.inUse(indexSecrets, v)
			return s.space.Secret(v), used, err
		},
		push:    translate.PushSecret,
		belongs: s.tokensOf,
	}, nil)
	return nil
}
