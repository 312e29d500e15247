// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncServiceAccounts creates a service account on the host for each one of the space. Admins, and
// software on the host, can tell pods apart by it. It has no rights, no secrets, and no tokens.
func (s *Syncer) syncServiceAccounts() error {
	engine.Add(&engine.Resource[*corev1.ServiceAccount]{
		Engine: s.Engine, Name: resources.ServiceAccounts, NameLimit: translate.LimitSubdomain,
		Virtual: s.Informers.Core().V1().ServiceAccounts().Informer(),
		ToHost: func(_ context.Context, v *corev1.ServiceAccount) (*corev1.ServiceAccount, bool, error) {
			return s.Space.ServiceAccount(v), true, nil
		},
		UpdateHost: translate.PushServiceAccount,
	}, nil)
	return nil
}

// withAccount sets the host account of v's service account in a host pod, and creates it if necessary: in the space, a
// pod can't exist before its account, but it may be synced before it.
func (s *Syncer) withAccount(ctx context.Context, v, host *corev1.Pod) error {
	if !s.Sync.On(resources.ServiceAccounts) || v.Spec.ServiceAccountName == "" {
		return nil
	}
	account, err := s.Informers.Core().V1().ServiceAccounts().Lister().ServiceAccounts(v.Namespace).Get(v.Spec.ServiceAccountName)
	if err != nil {
		return fmt.Errorf("find service account %s: %w", v.Spec.ServiceAccountName, err)
	}
	want := s.Space.ServiceAccount(account)
	if _, exists := hostcache.Get[*corev1.ServiceAccount](s.Host, resources.ServiceAccounts, want.Namespace, want.Name); !exists {
		if err := engine.CreateOnHost(ctx, s.HostAPI, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make host service account of %s: %w", v.Spec.ServiceAccountName, err)
		}
	}
	host.Spec.ServiceAccountName = want.Name
	return nil
}
