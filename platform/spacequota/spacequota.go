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
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
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
	ledgers *quota.Ledgers
	queue   workqueue.TypedRateLimitingInterface[task]

	mu     sync.Mutex
	gates  map[string]*quota.Gate
	hungry map[string]*hunger
	short  map[string]shortage // by space
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
)

// New returns the quotas of a platform's spaces.
func New(o Options) (*Quotas, error) {
	store, err := quota.NewHost(o.Host, func(space string) *corev1.ResourceQuota { return isolation.NewQuota(translate.Space{Name: space}) })
	if err != nil {
		return nil, err
	}
	q := &Quotas{
		Options: o, gates: map[string]*quota.Gate{}, hungry: map[string]*hunger{}, short: map[string]shortage{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](retryPause, time.Minute)),
	}
	q.ledgers = quota.New(store, q, o.Clock)
	return q, nil
}

// least is what each space needs for the objects that isolate it and make its API and its DNS known.
func least() quota.Amounts {
	return quota.Amounts{
		corev1.ResourceServices:                   resource.MustParse("2"),
		corev1.ResourceConfigMaps:                 resource.MustParse("1"),
		"count/endpointslices.discovery.k8s.io":   resource.MustParse("4"),
		"count/networkpolicies.networking.k8s.io": resource.MustParse("3"),
		"count/serviceaccounts":                   resource.MustParse("3"),
	}
}

// Place gives a space the share that it needs to begin with, and writes its quota on the host. The namespace of the space must exist.
func (q *Quotas) Place(ctx context.Context, space string) error {
	tenant, ceiling := q.Of(space)
	err := q.ledgers.Adopt(ctx, tenant, space)
	var hard quota.Amounts
	if err == nil {
		hard, err = q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, Has: least(), OnHost: true})
	}
	if more := soon(hard); err == nil && len(more) > 0 {
		if _, err := q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, More: more, OnHost: true}); err != nil && !quota.IsExceeded(err) {
			return fmt.Errorf("give space %s its share of the quota of tenant %s: %w", space, tenant, err)
		}
	}
	switch {
	case quota.IsExceeded(err) && hasLeast(hard): // it uses too much of something, which is not taken away
		return nil
	case errors.Is(err, quota.ErrNotFound):
		return fmt.Errorf("the quota of tenant %s isn't known yet: the operator writes it once the tenant exists; look at kubectl get tenant %s: %w", tenant, tenant, err)
	case err != nil:
		return fmt.Errorf("give space %s its share of the quota of tenant %s: %w", space, tenant, err)
	}
	return nil
}

// soon is what a space without any of these needs sooner or later: for what the syncer makes of pods and other objects, it would ask only once
// the host has rejected it.
func soon(hard quota.Amounts) quota.Amounts {
	more := quota.Amounts{}
	for _, name := range []corev1.ResourceName{corev1.ResourceSecrets, "count/ingresses.networking.k8s.io", "count/poddisruptionbudgets.policy"} {
		if has, limited := hard[name]; limited && has.IsZero() {
			more[name] = resource.MustParse("1")
		}
	}
	return more
}

// hasLeast reports whether a space has what it needs to begin with.
func hasLeast(hard quota.Amounts) bool {
	for name, amount := range least() {
		if has, limited := hard[name]; limited && has.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}

// Gate returns the gate of a space that starts; nil if the space has no tenant.
func (q *Quotas) Gate(space string) *quota.Gate {
	if tenant, _ := q.Of(space); tenant == "" {
		q.setGate(space, nil)
		return nil
	}
	gate := quota.NewGate(func(ctx context.Context, has, more quota.Amounts) error { return q.ask(ctx, space, has, more) }, q.Clock)
	q.setGate(space, gate)
	return gate
}

func (q *Quotas) setGate(space string, gate *quota.Gate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gates[space] = gate; gate == nil {
		delete(q.gates, space)
	}
}

func (q *Quotas) gate(space string) *quota.Gate {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.gates[space]
}

// ask is the [quota.Ask] of a space.
func (q *Quotas) ask(ctx context.Context, space string, has, more quota.Amounts) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	tenant, ceiling := q.Of(space)
	_, err := q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, Has: has, More: more})
	q.note(space, tenant, err)
	return err
}

// Lower implements [quota.Gates].
func (q *Quotas) Lower(space string, to quota.Amounts) quota.Amounts {
	if gate := q.gate(space); gate != nil {
		return gate.Lower(to)
	}
	return nil
}

// Raise implements [quota.Gates].
func (q *Quotas) Raise(space string, hard quota.Amounts) {
	if gate := q.gate(space); gate != nil {
		gate.Raise(hard)
	}
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

// Short is told what the host rejected of a space, because its quota there allows no more. It does not block.
func (q *Quotas) Short(space string, requested quota.Amounts) {
	if tenant, _ := q.Of(space); tenant == "" {
		return
	}
	if gate := q.gate(space); gate != nil {
		gate.Forget() // the share may have been lowered by another platform
	}
	q.mu.Lock()
	if short := utilquota.Max(q.short[space].of, requested); len(short) <= maxShort {
		q.short[space] = shortage{short, q.Clock.Now()}
	}
	q.mu.Unlock()
	q.queue.AddAfter(task{grow, space}, retryPause/10)
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

// Run does what [Quotas.Eased], [Quotas.Short], and [Quotas.Check] ask for, until ctx ends.
func (q *Quotas) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range workers {
		safego.Go(&group, "give shares of quotas", func() {
			for q.next(ctx) {
			}
		}, nil)
	}
	if err := q.followLedgers(ctx); err != nil {
		q.Logger.Error(err, "Could not watch the quotas of tenants; changes take effect when a space starts")
	}
	<-ctx.Done()
	q.queue.ShutDown()
	group.Wait()
}

func (q *Quotas) next(ctx context.Context) bool {
	one, end := q.queue.Get()
	if end {
		return false
	}
	defer q.queue.Done(one)
	if err := safego.Call("give shares of quotas", func() error { return q.do(ctx, one) }); err != nil && ctx.Err() == nil {
		q.Logger.Error(err, "Could not change the share of a quota; Berth retries", "name", one.space)
		q.queue.AddRateLimited(one)
		return true
	}
	q.queue.Forget(one)
	return true
}

func (q *Quotas) do(ctx context.Context, one task) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	switch one.kind {
	case retry:
		q.again(one.space)
		return nil
	case trim:
		err := q.ledgers.Trim(ctx, one.space)
		if errors.Is(err, quota.ErrNotFound) {
			return nil
		}
		return err
	case finish:
		return q.finish(ctx, one.space)
	case place:
		if !q.Serves(one.space) {
			return nil
		}
		if err := q.Place(ctx, one.space); err != nil && !quota.IsExceeded(err) && !errors.Is(err, quota.ErrNotFound) {
			return err
		}
		return nil
	default:
		return q.growShort(ctx, one.space)
	}
}

// again has a space that was refused try again.
func (q *Quotas) again(space string) {
	q.mu.Lock()
	one, is := q.hungry[space]
	if is && q.Clock.Since(one.since) > 2*lastLook { // it doesn't want it any more
		delete(q.hungry, space)
		is = false
	}
	if is {
		one.tried = q.Clock.Now()
		one.look = min(2*one.look, lastLook)
	}
	gate := q.gates[space]
	short := len(q.short[space].of) > 0
	q.mu.Unlock()
	if !is {
		return
	}
	if gate != nil {
		gate.Freed()
	}
	q.Retry(space)
	if short {
		q.queue.Add(task{grow, space})
	}
}

// growShort asks for what the host rejected. What a quota refuses doesn't keep the space from the rest, and is asked for again when
// something is freed.
func (q *Quotas) growShort(ctx context.Context, space string) error {
	q.mu.Lock()
	short := q.short[space]
	q.mu.Unlock()
	tenant, ceiling := q.Of(space)
	more, refused := maps.Clone(short.of), quota.Amounts{}
	for len(more) > 0 && tenant != "" && q.Serves(space) {
		_, err := q.ledgers.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Ceiling: ceiling, More: more, OnHost: true})
		q.note(space, tenant, err)
		exceeded := (*quota.Exceeded)(nil)
		if !errors.As(err, &exceeded) {
			if err != nil && !errors.Is(err, quota.ErrNotFound) {
				return err
			}
			break
		}
		before := len(more)
		for name := range exceeded.Limited {
			if amount, asked := more[name]; asked {
				refused[name] = amount
			}
			delete(more, name)
		}
		if len(more) == before {
			break
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.short[space].at != short.at: // there is more
	case len(refused) > 0 && q.Clock.Since(short.at) < shortTime:
		q.short[space] = shortage{refused, short.at}
	default:
		delete(q.short, space)
	}
	return nil
}

// finish does what is missing of shares of this platform's spaces that somebody else has begun to lower.
func (q *Quotas) finish(ctx context.Context, tenant string) error {
	spaces, err := q.ledgers.Lowering(ctx, tenant)
	if errors.Is(err, quota.ErrNotFound) {
		return nil
	}
	for _, space := range spaces {
		if q.Serves(space) {
			err = errors.Join(err, q.Check(ctx, space))
		}
	}
	return err
}

// Answer answers the process of a dedicated space. Somebody may have taken over the process: it gets no more than the tenant could have.
func (q *Quotas) Answer(ctx context.Context, space string, wanted quota.Wanted) quota.Answer {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	tenant, ceiling := q.Of(space)
	if tenant == "" {
		return quota.Answer{ID: wanted.ID, Failed: "the space has no tenant"}
	}
	hard, err := q.ledgers.Grow(ctx, quota.Request{
		Space: space, Tenant: tenant, Ceiling: ceiling, Has: wanted.Has.Amounts(), More: wanted.More.Amounts(), OnHost: wanted.OnHost,
	})
	q.note(space, tenant, err)
	answer := quota.Answer{ID: wanted.ID, Hard: hard}
	if exceeded := (*quota.Exceeded)(nil); errors.As(err, &exceeded) {
		answer.Refused = exceeded
	} else if err != nil {
		q.Logger.Error(err, "Could not give a dedicated space a larger share of its quota", "space", space)
		answer.Failed = "the host doesn't answer; try again"
	}
	return answer
}
