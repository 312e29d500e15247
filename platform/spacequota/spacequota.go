// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spacequota gives the spaces of a platform their shares of the quotas of their tenants.
//
// A space gets a first share when it is isolated on the host ([Quotas.Place]). It asks for more when its share isn't enough: in the space
// itself, before an object is created ([Quotas.Gate]), and when the host rejects what the syncer makes of an object ([Quotas.Short]).
// Spaces that were refused try again as soon as something is freed anywhere in the tree of their tenant.
package spacequota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/translate"
)

const (
	// retryPause is how long a space that was refused waits until it tries again after something was freed, so that it tries once for
	// many changes. retryAgain is the shortest time between two tries.
	retryPause, retryAgain = 200 * time.Millisecond, 800 * time.Millisecond
	// firstLook and lastLook limit how long a space that was refused waits until it tries again, although nothing tells that anything was
	// freed.
	firstLook, lastLook = 5 * time.Second, 2 * time.Minute
	// askTimeout limits how long a request in a space waits for a larger share.
	askTimeout = 10 * time.Second
	workers    = 8
	// settlePause is how long the shares of a ledger that was changed have, until what is missing is done.
	settlePause = time.Second
	// shortTime is how long it is known what the host rejected, if it doesn't reject it again.
	shortTime = 15 * time.Minute
	// maxShort limits how many resources are known that the host rejected of a space.
	maxShort = 100
)

// Options configure [Quotas]. The functions may be called concurrently.
type Options struct {
	Host *rest.Config
	// Of returns the tenant of a space, which is empty if it has none, and the quota of the space itself.
	Of func(space string) (tenant string, ceiling quota.Amounts)
	// Spaces returns the names of the platform's spaces, and Serves whether it serves a space, which is not being deleted.
	Spaces func() []string
	Serves func(space string) bool
	// Start has a space start that could not, because its quota wasn't known. It must not block.
	Start func(space string)
	// Retry has a space try again what was refused. It must not block.
	Retry func(space string)
	// Limited is called when the quota of the tenant of a space has changed. It must not block.
	Limited func(space string)
	// Refused is called when a quota refuses a resource to a space for the first time in some minutes. It must not block.
	Refused func(space string, why *quota.Exceeded)
	Clock   clock.Clock
	Logger  klog.Logger
}

// Quotas are the shares of a platform's spaces. They are safe for concurrent use.
type Quotas struct {
	Options
	host    *quota.Host
	ledgers *quota.Ledgers
	queue   workqueue.TypedRateLimitingInterface[task]

	mu     sync.Mutex
	gates  map[string]*quota.Gate
	hungry map[string]*hunger
	short  map[string]shortage      // by space
	drifts map[string]drift         // by space
	raised map[string]quota.Amounts // what the host enforced last, of spaces that may have devices
}

// shortage is what the host rejected of a space, and when it last did. A syncer tries again after ten minutes at the latest.
type shortage struct {
	of quota.Amounts
	at time.Time
}

type task struct {
	kind  taskKind
	space string // or tenant
}

type taskKind uint8

const (
	retry taskKind = iota
	grow
	trim
	place
	finish
	recount
)

// New returns the quotas of a platform's spaces.
func New(o Options) (*Quotas, error) {
	store, err := quota.NewHost(o.Host, func(space string) *corev1.ResourceQuota { return isolation.NewQuota(translate.Space{Name: space}) })
	if err != nil {
		return nil, err
	}
	q := &Quotas{
		Options: o, host: store, gates: map[string]*quota.Gate{}, hungry: map[string]*hunger{}, short: map[string]shortage{}, drifts: map[string]drift{}, raised: map[string]quota.Amounts{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](retryPause, time.Minute)),
	}
	q.ledgers = quota.New(store, q, o.Clock)
	return q, nil
}

// Eased is told that the quota of a space on the host allows more, or that the space uses less. It does not block.
func (q *Quotas) Eased(space string) {
	tenant, _ := q.Of(space) // empty also for spaces of other platforms
	if tenant == "" && q.Serves(space) {
		return // it has no tenant
	}
	q.ledgers.Freed(tenant, space)
	q.retryHungry(tenant)
}

// retryHungry has all spaces in the tree of a tenant that were refused something try again soon; if it is empty, all spaces.
func (q *Quotas) retryHungry(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name, one := range q.hungry {
		if tenant != "" && !q.ledgers.SameTree(tenant, one.tenant) {
			continue
		}
		q.queue.AddAfter(task{retry, name}, max(retryPause, retryAgain-q.Clock.Since(one.tried)))
	}
}

// Check makes sure that the host enforces the share of a space, and takes back what is beyond a limit that was lowered.
func (q *Quotas) Check(ctx context.Context, space string) error {
	tenant, _ := q.Of(space)
	if tenant == "" {
		return nil
	}
	if err := q.ledgers.Settle(ctx, tenant, space); err != nil && !errors.Is(err, quota.ErrNotFound) {
		return fmt.Errorf("check the quota of space %s: %w", space, err)
	}
	q.queue.Add(task{trim, tenant})
	return nil
}

// Remove frees the share of a space of which nothing is left on the host.
func (q *Quotas) Remove(ctx context.Context, space string) error {
	tenant, _ := q.Of(space)
	q.setGate(space, nil)
	if tenant == "" {
		return nil
	}
	if err := q.ledgers.Remove(ctx, tenant, quota.Space(space)); err != nil {
		return fmt.Errorf("free the share of space %s in the quota of tenant %s: %w", space, tenant, err)
	}
	q.Eased(space)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.hungry, space)
	delete(q.short, space)
	return nil
}
