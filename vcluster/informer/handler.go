// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/internal/safego"
)

// leastResync is upstream's shortest resync period.
const leastResync = time.Second

type kind uint8

const (
	added kind = iota
	updated
	deleted
	synced // all that was there at first has been told
)

// notification is what a handler is told.
type notification struct {
	kind        kind
	initial     bool
	old, object any
}

// registration is a handler and what it has yet to be told. A goroutine tells
// it, as long as there is something.
type registration struct {
	informer *storeInformer
	handler  cache.ResourceEventHandler
	synced   done
	removed  atomic.Bool
	resync   *time.Timer // nil for none

	mu      sync.Mutex
	queue   []notification
	telling bool
}

// add registers a handler, and tells it what is there.
func (i *storeInformer) add(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return nil, errStopped
	}
	r := &registration{informer: i, handler: h, synced: done{name: i.prefix, closed: make(chan struct{})}}
	for _, object := range i.indexer.List() {
		r.push(notification{kind: added, object: object, initial: true})
	}
	if i.synced.is() {
		r.push(notification{kind: synced})
	}
	if resync > 0 {
		resync = max(resync, leastResync)
		r.resync = safego.AfterFunc(resync, "resync a handler", func() { i.resyncOne(r, resync) })
	}
	i.handlers[r] = struct{}{}
	return r, nil
}

// resyncOne tells r of all objects again.
func (i *storeInformer) resyncOne(r *registration, period time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.removed.Load() {
		return
	}
	i.tellAgain(r)
	r.resync.Reset(period)
}

// tellAgain tells r of all objects as if each was updated. The informer is locked.
func (i *storeInformer) tellAgain(r *registration) {
	for _, object := range i.indexer.List() {
		r.push(notification{kind: updated, old: object, object: object})
	}
}

// resync tells all handlers of all objects again.
func (i *storeInformer) resync() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return
	}
	for r := range i.handlers {
		if !r.removed.Load() {
			i.tellAgain(r)
		}
	}
}

// remove lets r hear no more. The informer is locked.
func (r *registration) remove() {
	r.removed.Store(true)
	if r.resync != nil {
		r.resync.Stop()
	}
}

// push must be called with the informer locked, and while it is not stopped.
func (r *registration) push(n notification) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, n)
	if !r.telling {
		r.telling = true
		safego.Go(&r.informer.working, "tell a handler", r.tell, nil)
	}
}

func (r *registration) tell() {
	for {
		r.mu.Lock()
		batch := r.queue
		r.queue = nil
		r.telling = len(batch) > 0
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, n := range batch {
			if r.removed.Load() {
				break
			}
			// One bad object must not keep back the others.
			safego.Run("tell a handler", func() { r.tellOne(n) }, nil)
		}
	}
}

func (r *registration) tellOne(n notification) {
	switch n.kind {
	case added:
		r.handler.OnAdd(n.object, n.initial)
	case updated:
		r.handler.OnUpdate(n.old, n.object)
	case deleted:
		r.handler.OnDelete(n.object)
	case synced:
		close(r.synced.closed)
	}
}

func (r *registration) HasSynced() bool                     { return r.synced.is() }
func (r *registration) HasSyncedChecker() cache.DoneChecker { return r.synced }

// done is a [cache.DoneChecker].
type done struct {
	name   string
	closed chan struct{}
}

func (d done) Name() string          { return d.name }
func (d done) Done() <-chan struct{} { return d.closed }

func (d done) is() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

func sameRevision(a, b any) bool {
	x, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	y, err := meta.Accessor(b)
	return err == nil && x.GetUID() == y.GetUID() && x.GetResourceVersion() == y.GetResourceVersion()
}

// What follows is the rest of [cache.SharedIndexInformer].

func (i *storeInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(h, Resync)
}

func (i *storeInformer) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.add(h, resync)
}

func (i *storeInformer) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	resync := Resync
	if o.ResyncPeriod != nil {
		resync = *o.ResyncPeriod
	}
	return i.add(h, resync)
}

func (i *storeInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r, ok := handle.(*registration); ok && r.informer == i {
		r.remove()
		delete(i.handlers, r)
	}
	return nil
}

func (i *storeInformer) GetStore() cache.Store                 { return i.indexer }
func (i *storeInformer) GetIndexer() cache.Indexer             { return i.indexer }
func (i *storeInformer) GetController() cache.Controller       { return controllerOf{i} }
func (i *storeInformer) HasSynced() bool                       { return i.synced.is() }
func (i *storeInformer) HasSyncedChecker() cache.DoneChecker   { return i.synced }
func (i *storeInformer) AddIndexers(more cache.Indexers) error { return i.indexer.AddIndexers(more) }

func (i *storeInformer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopped
}

// Run is for whoever has the informer to themselves.
func (i *storeInformer) Run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	i.start(ctx)
	<-stop
	i.stop()
}

func (i *storeInformer) RunWithContext(ctx context.Context) { i.Run(ctx.Done()) }

// There is no watch of its own that could fail.

func (i *storeInformer) SetWatchErrorHandler(cache.WatchErrorHandler) error { return errShared }

func (i *storeInformer) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error {
	return errShared
}

func (i *storeInformer) SetTransform(cache.TransformFunc) error { return errShared }

// controllerOf is what remains of an informer to those who take it for a
// controller: it can't be run by them.
type controllerOf struct{ informer *storeInformer }

func (controllerOf) Run(<-chan struct{})                   {}
func (controllerOf) RunWithContext(context.Context)        {}
func (c controllerOf) HasSynced() bool                     { return c.informer.HasSynced() }
func (c controllerOf) HasSyncedChecker() cache.DoneChecker { return c.informer.HasSyncedChecker() }
func (c controllerOf) LastSyncResourceVersion() string     { return c.informer.LastSyncResourceVersion() }
