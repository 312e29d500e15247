// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// syncServiceAccounts creates a service account on the host for each one of the space. Admins, and
// software on the host, can tell pods apart by it. It has no rights, no secrets, and no tokens. By annotations that the admin allows, a
// cloud gives its pods an identity.
func (s *Syncer) syncServiceAccounts() error {
	engine.Add(&engine.Resource[*corev1.ServiceAccount]{
		Engine: s.Engine, Name: resources.ServiceAccounts, NameLimit: translate.LimitSubdomain,
		Virtual:       s.Informers.Core().V1().ServiceAccounts().Informer(),
		ToHost:        s.accountToHost,
		MakesRequests: true,
		UpdateHost:    translate.PushServiceAccount,
		// The account is on the host without what is forbidden, and the tenant is told.
		UpdateSubresources: func(_ context.Context, v, _, host *corev1.ServiceAccount) (*corev1.ServiceAccount, error) {
			return host, engine.Forbid(s.Space.Settings.WorkloadIdentity.Check(v.Annotations))
		},
		ConcernsNoOthers: func(was, is *corev1.ServiceAccount) bool {
			return s.Space.Settings.WorkloadIdentity.Same(was.Annotations, is.Annotations)
		},
	}, func(v *corev1.ServiceAccount, enqueue func(engine.Key)) {
		if len(s.Space.Settings.WorkloadIdentity) > 0 { // pods may wait for another annotation
			s.enqueuePods(v.Namespace, enqueue)
		}
	})
	return nil
}

// accountToHost returns the host account of v. Its annotations are as the API has them: if they were those of a watch that is behind, they
// would replace what [Syncer.identify] has written for a pod that is about to be created. The host rejects a write that is based on an
// older version of its account.
func (s *Syncer) accountToHost(ctx context.Context, v *corev1.ServiceAccount) (*corev1.ServiceAccount, bool, error) {
	if len(s.Space.Settings.WorkloadIdentity) == 0 {
		return s.Space.ServiceAccount(v), true, nil
	}
	current := &corev1.ServiceAccount{}
	if err := s.VirtualAPI.Get(ctx, client.ObjectKeyFromObject(v), current); err != nil {
		return nil, false, fmt.Errorf("read service account %s: %w", v.Name, err) // if it is gone, its deletion triggers another sync
	}
	if current.UID != v.UID { // another one has its name, which triggers another sync
		current = v.DeepCopy()
		current.Annotations = nil
	}
	return s.Space.ServiceAccount(current), true, nil
}

// withAccount sets the host account of v's service account in a host pod, and creates it if necessary: in the space, a
// pod can't exist before its account, but it may be synced before it.
func (s *Syncer) withAccount(ctx context.Context, v, host *corev1.Pod) error {
	if !s.Sync.On(resources.ServiceAccounts) || v.Spec.ServiceAccountName == "" {
		return nil
	}
	account, err := s.accountOf(v)
	if err != nil {
		return err
	}
	want := s.Space.ServiceAccount(account)
	have, exists := hostcache.Get[*corev1.ServiceAccount](s.Host, resources.ServiceAccounts, want.Namespace, want.Name)
	switch {
	case len(s.Space.Settings.WorkloadIdentity) > 0, exists && translate.HadWorkloadIdentity(have):
		if err := s.identify(ctx, v, host); err != nil {
			return err
		}
	case !exists:
		if err := engine.CreateOnHost(ctx, s.HostAPI, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make host service account of %s: %w", v.Spec.ServiceAccountName, err)
		}
	}
	host.Spec.ServiceAccountName = want.Name
	return nil
}

// accountOf returns v's service account as the space's watch has it.
func (s *Syncer) accountOf(v *corev1.Pod) (*corev1.ServiceAccount, error) {
	account, err := s.Informers.Core().V1().ServiceAccounts().Lister().ServiceAccounts(v.Namespace).Get(v.Spec.ServiceAccountName)
	if err != nil {
		return nil, fmt.Errorf("find service account %s: %w", v.Spec.ServiceAccountName, err)
	}
	return account, nil
}

// webhookLag is how long the host's webhooks may take to learn of a change of an account. They read accounts from watches, and a pod
// keeps for good what it got by an older version: no identity, or one that was taken away. The host gives times in whole seconds.
const webhookLag = 2 * time.Second

// sinceChange returns how long a host account is as it is, by the host's clock. If that clock is ahead by more than webhookLag, nothing
// waits for it. A new account may be in the place of one that had an identity.
func (s *Syncer) sinceChange(host *corev1.ServiceAccount) time.Duration {
	last := host.CreationTimestamp.Time
	for _, entry := range host.ManagedFields {
		if entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	since := s.Clock.Since(last)
	if since < -webhookLag {
		return webhookLag
	}
	return max(since, 0)
}

// identify makes sure that a host pod, which is about to be created, gets the identity of v's service account, and no other. A webhook of
// the cloud reads the host account when the pod is created, so it must be up to date then. Both sides are read from the API, because
// watches can be behind.
func (s *Syncer) identify(ctx context.Context, v, host *corev1.Pod) error {
	account := &corev1.ServiceAccount{}
	if err := s.VirtualAPI.Get(ctx, types.NamespacedName{Namespace: v.Namespace, Name: v.Spec.ServiceAccountName}, account); err != nil {
		return fmt.Errorf("read service account %s: %w", v.Spec.ServiceAccountName, err)
	}
	rules := s.Space.Settings.WorkloadIdentity
	if errs := rules.Check(account.Annotations); len(errs) > 0 {
		return engine.Forbids(fmt.Errorf("the pod waits, because its service account %s asks for an identity that it may not have: %w", account.Name, errs.ToAggregate()))
	}
	want, have := s.Space.ServiceAccount(account), &corev1.ServiceAccount{}
	written := have
	err := s.HostAPI.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		err, written = engine.CreateOnHost(ctx, s.HostAPI, want), want
	case err != nil:
	default:
		if id, ours := translate.IdentityOf(have); !ours || id.Space != s.Space.Name {
			return fmt.Errorf("%w: the host already has another object with the host name of service account %s; ask the admin of the platform to delete it", engine.ErrForeign, account.Name)
		}
		if translate.PushServiceAccount(want, have) {
			err = s.HostAPI.Update(ctx, have)
		}
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // other pods of the account make it equal, too
		return engine.Later(engine.FirstRetry, "the host account is being changed")
	}
	if err != nil {
		return fmt.Errorf("make host service account of %s: %w", account.Name, err)
	}
	if wait := webhookLag - s.sinceChange(written); wait > 0 {
		return engine.Later(wait, "the host account has just changed, and webhooks may not know yet")
	}
	// The pod was translated with an account that may be older.
	maps.DeleteFunc(host.Labels, func(key, _ string) bool { return rules.IsPodLabel(key) })
	maps.Copy(host.Labels, rules.PodLabels(account.Annotations, v.Labels))
	return nil
}
