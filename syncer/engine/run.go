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

	"github.com/berth-dev/berth/syncer/resources"
)

const (
	// workers is how many reconciles of one space are under way at once. Each
	// waits for an API most of the time: with half as many, a host whose scheduler
	// and kubelets are as busy lets a burst of pods wait for them.
	workers = 64
	// FirstRetry is after how long what failed is tried again, the first time.
	FirstRetry = 50 * time.Millisecond
	firstLater = time.Second // for what is not an error of the syncer's
	lastRetry  = 10 * time.Minute
	// hastened is how often at most what failed is tried again before its time, as the host takes writes again.
	hastened = 30 * time.Second
)

// Run works until ctx ends, and returns when all its work has stopped. It may
// be called once.
func (s *Engine) Run(ctx context.Context) error {
	s.Informers.Start(ctx.Done())
	var extended sync.WaitGroup
	defer extended.Wait()
	ctx, cancel := context.WithCancel(ctx) // what was installed ends with the syncer, whyever it does
	defer cancel()
	s.install(ctx, &extended)
	if !cache.WaitFor(ctx, "", s.synced...) {
		return nil // ctx ended
	}
	defer s.Recorder.close()
	defer s.Queue.close()
	for _, count := range s.counts { // before what is new takes what they have
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

// reconcile works on a key, whatever comes of it. Classes that can't be imported are
// imported when the space wakes.
func (s *Engine) reconcile(ctx context.Context, key Key) next {
	if ctx.Err() != nil {
		return next{} // what is still queued when the syncer stops
	}
	switch now, later := s.defined(key.Resource); {
	case now:
	case later:
		return next{after: s.soon.When(key), idle: true}
	default:
		return next{}
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
		// Nothing is wrong with the syncer. Most often somebody was faster, and an
		// event tells at once; but a conflict may also be over a quota, and what is
		// not found may be a service account, or the host behind its proxy.
		return next{after: s.later.When(key), idle: resources.Of(key.Resource).Class}
	case ctx.Err() != nil:
		return next{}
	default:
		s.logger.Error(err, "Could not sync an object; Berth retries", "resource", key.Resource, "namespace", key.Namespace, "name", key.Name)
		s.failing.Store(true)
		return next{after: s.soon.When(key), idle: resources.Of(key.Resource).Class, failed: true}
	}
}

// refused says when to try again what was refused: a space need not be awake for it, but for what is on the host already and
// is due after again, if that is not 0.
func refused(later, again time.Duration) next {
	n := next{after: later, idle: true, refused: true}
	if again > 0 {
		n.after, n.wake = min(later, again), again
	}
	return n
}

// wrote is told of each write that the host took: it may be well again.
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

// try turns a panic over one object into an error: the process holds other
// tenants' spaces.
func (s *Engine) try(ctx context.Context, key Key) (after time.Duration, err error) {
	defer func() {
		if p := recover(); p != nil {
			after, err = 0, fmt.Errorf("sync %s %s: panic: %v\n%s", key.Resource, key.NamespacedName, p, debug.Stack())
		}
	}()
	return s.Work[key.Resource](ctx, key.NamespacedName)
}

// Idle reports whether there is nothing to do: all that both sides have shown is
// worked up, and the host's watches have shown the syncer's own writes. What
// failed and is due later does not count, see [Engine.NextTimer].
func (s *Engine) Idle() bool {
	return s.Sources.hasSynced() && s.Queue.empty() && s.Writer.seen()
}

// NextTimer is when the syncer has something to do by itself, ok is false if it
// has not: tokens of running pods to replace, reservations to give back, and
// tries to repeat that failed for the host's sake. What the host or the space's
// rules refused is not among it: it is tried again when the space wakes.
func (s *Engine) NextTimer() (at time.Time, ok bool) { return s.Queue.nextTimer() }
