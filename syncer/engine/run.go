// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

const (
	// workers is how many keys of one space are processed at once. Mostly, each waits for an API. With half as many, a
	// burst of pods would be delayed on a host with a busy scheduler and kubelets.
	workers = 64
	// FirstRetry is the pause before the first retry.
	FirstRetry = 50 * time.Millisecond
	firstLater = time.Second // if the syncer is not the cause
	lastRetry  = 10 * time.Minute
	// hastened is the minimum interval at which failed keys are retried early because the host accepts writes again.
	hastened = 30 * time.Second
)

// Run processes keys until ctx ends, and returns when all work has stopped. It may be called once.
func (s *Engine) Run(ctx context.Context) error {
	s.Informers.Start(ctx.Done())
	var extended sync.WaitGroup
	defer extended.Wait()
	ctx, cancel := context.WithCancel(ctx) // so that extensions end with the syncer, whatever the reason is
	defer cancel()
	s.runExtensions(ctx, &extended)
	if !cache.WaitFor(ctx, "", s.synced...) {
		return nil // ctx ended
	}
	defer s.Recorder.close()
	defer s.Queue.close()
	for _, count := range s.counts { // before new objects use up the limit
		count()
	}
	s.Queue.open(ctx)
	defer s.Sources.Close()
	if err := s.Sources.Open(s.Queue); err != nil && ctx.Err() == nil { // informers may end with ctx
		return fmt.Errorf("sync space %s: %w", s.Space.Name, err)
	}
	<-ctx.Done()
	return nil
}

// reconcile processes a key, and returns when it is due again. Classes that can't be imported are imported when the
// space wakes.
func (s *Engine) reconcile(ctx context.Context, key Key) next {
	if ctx.Err() != nil {
		return next{} // left in the queue when the syncer stops
	}
	after, err := s.try(ctx, key)
	s.shortages.ended(key, err)
	if errors.Is(err, ErrUnsettled) {
		return next{after: s.soon.When(key), idle: true}
	}
	s.counters.count(err)
	var soon *pacedError
	switch {
	case err == nil:
		s.soon.Forget(key)
		s.later.Forget(key)
		return next{after: after}
	case errors.Is(err, errWaits):
		return next{after: after}
	case errors.As(err, &soon):
		return next{after: soon.after}
	case errors.Is(err, errRefused):
		return refused(s.later.When(key), after)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// These are not errors of the syncer. Usually, somebody else changed the object, and an event follows. But a
		// conflict may also be about a quota, and what is not found may be a service account, or the host behind a
		// proxy.
		return next{after: s.later.When(key), idle: s.mayRest(key.Resource)}
	case ctx.Err() != nil:
		return next{}
	default:
		s.logger.Error(err, "Could not sync an object; Berth retries", "resource", key.Resource, "namespace", key.Namespace, "name", key.Name)
		s.failing.Store(true)
		return next{after: s.soon.When(key), idle: s.mayRest(key.Resource), failed: true}
	}
}

// refused returns when to retry what was rejected. The space need not wake for it, unless the object is on the host and
// is due after again, if that is not 0.
func refused(later, again time.Duration) next {
	n := next{after: later, idle: true, refused: true}
	if again > 0 {
		n.after, n.wake = min(later, again), again
	}
	return n
}

// wrote is called after each successful write: the host may work again.
func (s *Engine) wrote() {
	s.bytes.more()
	if !s.failing.Load() {
		return
	}
	now, last := s.Clock.Now().UnixNano(), s.lastHastened.Load()
	if now-last < int64(hastened) || !s.lastHastened.CompareAndSwap(last, now) {
		return
	}
	s.failing.Store(false)
	s.Queue.hasten()
}

// try turns a panic about one object into an error, because the process runs spaces of other tenants.
func (s *Engine) try(ctx context.Context, key Key) (after time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			after, err = 0, fmt.Errorf("sync %s %s: panic: %v\n%s", key.Resource, key.NamespacedName, p, debug.Stack())
		}
	}()
	return s.Work[key.Resource](ctx, key.NamespacedName)
}

// Idle reports whether there is no work: all changes on both sides have been processed, and the host's watches have
// returned the syncer's own writes. Retries that are due later don't count; see [Engine.NextTimer].
func (s *Engine) Idle() bool {
	return s.Sources.hasSynced() && s.Queue.empty() && s.Writer.seen()
}

// NextTimer returns when the syncer next has work of its own; ok is false if it has none. Such work is replacing tokens
// of running pods, releasing reservations, and retrying what failed because of the host. What the host or the space's
// rules rejected is not included: it is retried when the space wakes.
func (s *Engine) NextTimer() (at time.Time, ok bool) { return s.Queue.nextTimer() }
