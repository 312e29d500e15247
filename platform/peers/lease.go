// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// leaseDuration is for how long a shard counts as alive after it has renewed its Lease, and renewInterval is how often it does that.
	leaseDuration, renewInterval = 3 * time.Second, 750 * time.Millisecond
	// renewTimeout limits one attempt.
	renewTimeout = 2 * time.Second
)

// ErrReplaced is why a shard ends: another process has its name.
var ErrReplaced = errors.New("another process is this shard now; this one ends, so that the two never serve one space")

// lease is a shard's claim to be alive. One goroutine uses it.
type lease struct {
	host   client.Client
	clock  clock.Clock
	key    client.ObjectKey
	holder string
	logger klog.Logger
}

// acquire takes the Lease once nobody renews it any more, as judged by the clock of this machine alone.
func (l *lease) acquire(ctx context.Context) error {
	var seen *coordinationv1.Lease
	var since time.Time
	for {
		current := &coordinationv1.Lease{}
		err := l.host.Get(ctx, l.key, current)
		switch {
		case apierrors.IsNotFound(err):
			err = l.host.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}, Spec: l.spec()})
		case err != nil:
		case ptr.Deref(current.Spec.HolderIdentity, "") == "" || *current.Spec.HolderIdentity == l.holder || seen != nil && seen.ResourceVersion == current.ResourceVersion && l.clock.Since(since) >= leaseDuration:
			current.Spec = l.spec()
			err = l.host.Update(ctx, current)
		default:
			if seen == nil {
				l.logger.Info("Waiting until the earlier process of this shard has ended", "shard", l.key.Name, "holder", ptr.Deref(current.Spec.HolderIdentity, ""))
			}
			if seen == nil || seen.ResourceVersion != current.ResourceVersion {
				seen, since = current, l.clock.Now()
			}
			if err := l.wait(ctx, renewInterval/4); err != nil {
				return err
			}
			continue
		}
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("take Lease %s: %w", l.key, err)
		}
	}
}

func (l *lease) spec() coordinationv1.LeaseSpec {
	now := metav1.NewMicroTime(l.clock.Now())
	return coordinationv1.LeaseSpec{
		HolderIdentity: &l.holder, LeaseDurationSeconds: ptr.To(int32(leaseDuration / time.Second)), AcquireTime: &now, RenewTime: &now,
	}
}

func (l *lease) wait(ctx context.Context, d time.Duration) error {
	timer := l.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// keep renews the Lease until ctx ends, and releases it then. It returns [ErrReplaced] as soon as somebody else holds it. While the host
// doesn't answer, the shard goes on: what it serves is in its own volume.
func (l *lease) keep(ctx context.Context) error {
	failing := false
	for l.wait(ctx, renewInterval) == nil {
		err := l.renew(ctx)
		switch {
		case errors.Is(err, ErrReplaced):
			return err
		case err != nil && ctx.Err() == nil && !failing:
			failing = true
			l.logger.Error(err, "Could not renew the Lease of this shard, which counts as dead meanwhile; Berth retries", "lease", l.key)
		case err == nil && failing:
			failing = false
			l.logger.Info("Renewed the Lease of this shard again", "lease", l.key)
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
	defer cancel()
	return l.update(ending, func(current *coordinationv1.Lease) { current.Spec.HolderIdentity = nil })
}

func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	now := metav1.NewMicroTime(l.clock.Now())
	return l.update(ctx, func(current *coordinationv1.Lease) { current.Spec.RenewTime = &now })
}

// update changes the Lease, if this process still holds it.
func (l *lease) update(ctx context.Context, change func(*coordinationv1.Lease)) error {
	current := &coordinationv1.Lease{}
	err := l.host.Get(ctx, l.key, current)
	if apierrors.IsNotFound(err) { // deleted by hand
		return l.acquire(ctx)
	}
	if err != nil {
		return fmt.Errorf("read Lease %s: %w", l.key, err)
	}
	if ptr.Deref(current.Spec.HolderIdentity, "") != l.holder {
		return ErrReplaced
	}
	change(current)
	if err := l.host.Update(ctx, current); err != nil {
		return fmt.Errorf("write Lease %s: %w", l.key, err)
	}
	return nil
}
