// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncServiceAccounts gives each service account of a space one on the host,
// which its pods run as: an identity that admins, and what they run on the host,
// can tell apart. It has no rights, no secrets and no tokens.
func (s *podSyncer) syncServiceAccounts() error {
	add(&syncedResource[*corev1.ServiceAccount]{
		Engine: s.Engine, name: resources.ServiceAccounts, nameLimit: translate.LimitSubdomain,
		newObject: func() *corev1.ServiceAccount { return &corev1.ServiceAccount{} },
		virtual:   s.informers.Core().V1().ServiceAccounts().Informer(),
		toHost: func(_ context.Context, v *corev1.ServiceAccount) (*corev1.ServiceAccount, bool, error) {
			return s.space.ServiceAccount(v), true, nil
		},
		updateHost: translate.PushServiceAccount,
	}, nil)
	return nil
}

// withAccount makes a host pod run as the host account of v's, which may have to
// be made: pods come no earlier than their accounts, but their work may.
func (s *podSyncer) withAccount(ctx context.Context, v, host *corev1.Pod) error {
	if !s.host.Sync.On(resources.ServiceAccounts) || v.Spec.ServiceAccountName == "" {
		return nil
	}
	account, err := s.informers.Core().V1().ServiceAccounts().Lister().ServiceAccounts(v.Namespace).Get(v.Spec.ServiceAccountName)
	if err != nil {
		return fmt.Errorf("find service account %s: %w", v.Spec.ServiceAccountName, err)
	}
	want := s.space.ServiceAccount(account)
	if _, exists := cached[*corev1.ServiceAccount](s.host, resources.ServiceAccounts, want.Namespace, want.Name); !exists {
		if err := createOnHost(ctx, s.hostAPI, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make host service account of %s: %w", v.Spec.ServiceAccountName, err)
		}
	}
	host.Spec.ServiceAccountName = want.Name
	return nil
}
