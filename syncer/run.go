// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	workers    = 12 // reconciles of one space under way at once
	firstRetry = 50 * time.Millisecond
	firstLater = time.Second // for what is not an error of the syncer's
	lastRetry  = 30 * time.Second
)

// Run syncs until ctx ends, and returns when all its work has stopped. It may
// be called once.
func (s *Syncer) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	watch := broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.clientset.CoreV1().Events("")})
	defer watch.Stop()
	s.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "berth"})

	s.informers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return nil // ctx ended
	}
	c, err := controller.NewTypedUnmanaged("syncer", controller.TypedOptions[Key]{
		SkipNameValidation:      ptr.To(true), // one a space, many a process
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[Key](firstRetry, lastRetry),
		NewQueue:                newQueue,
		LogConstructor:          s.log,
		Reconciler:              reconcile.TypedFunc[Key](s.reconcile),
	})
	if err != nil {
		return fmt.Errorf("sync space %s: %w", s.space.Name, err)
	}
	f := &feed{sources: s.sources}
	defer f.close()
	if err := c.Watch(source.TypedFunc[Key](f.open)); err != nil {
		return fmt.Errorf("sync space %s: %w", s.space.Name, err)
	}
	if err := c.Start(ctx); err != nil {
		return fmt.Errorf("sync space %s: %w", s.space.Name, err)
	}
	return nil
}

func (s *Syncer) reconcile(ctx context.Context, key Key) (reconcile.Result, error) {
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // what is still queued when the syncer stops
	}
	result, err := s.kinds[key.Kind](ctx, key.NamespacedName)
	switch {
	case err == nil:
		s.later.Forget(key)
		return result, nil
	case errors.Is(err, errRefused), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// Nothing is wrong with the syncer. Most often somebody was faster, and an
		// event tells at once; but a conflict may also be over a quota, and what is
		// not found may be a service account, or the host behind its proxy.
		return reconcile.Result{RequeueAfter: s.later.When(key)}, nil
	default:
		return result, err
	}
}

// newQueue is client-go's. controller-runtime's own (v0.24.1) can deadlock when
// it is shut down with work in it, and syncers stop whenever a space sleeps. It
// has no name, as a name gives it metrics: those of all spaces would be one, and
// cost each space a ticker.
func newQueue(_ string, limiter workqueue.TypedRateLimiter[Key]) workqueue.TypedRateLimitingInterface[Key] {
	return workqueue.NewTypedRateLimitingQueue(limiter)
}

func (s *Syncer) log(key *Key) logr.Logger {
	if key == nil {
		return s.logger
	}
	return s.logger.WithValues("kind", key.Kind, "namespace", key.Namespace, "name", key.Name)
}

// addSource adds event handlers that fill the queue, and says how to remove them.
type addSource func(enqueue func(Key)) (remove func(), err error)

// feed connects sources to the queue. A controller that is stopped while it
// starts does not wait for its sources: a feed that is closed adds no more.
type feed struct {
	sources []addSource

	mu     sync.Mutex
	closed bool
	remove []func()
}

func (f *feed) open(_ context.Context, queue workqueue.TypedRateLimitingInterface[Key]) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	for _, add := range f.sources {
		remove, err := add(queue.Add)
		if err != nil {
			return err
		}
		f.remove = append(f.remove, remove)
	}
	return nil
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, remove := range f.remove {
		remove()
	}
}
