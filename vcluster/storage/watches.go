// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/hub"
	"github.com/berth-dev/berth/vcluster/inside"
)

// clientWatches are the watches of a space that its clients have open. Upstream's storage keeps up to 200 changes of each
// in memory until its client takes them; the store hands it no more than a flow allows.
type clientWatches struct {
	account *bounds.Account

	mu     sync.Mutex
	open   map[*clientWatch]struct{}
	looked atomic.Int64 // when a watch to end was last looked for, in nanoseconds
	work   sync.WaitGroup
}

const (
	// watchEnds is how long at least a client has to take something of what waits for it, and how long at least others have
	// to use what one watch held, before the next is ended.
	watchEnds = time.Second
)

// endSlowest ends, in the background, the watch of which something waits and whose client has taken nothing for longest, if
// that is long enough. Its client misses nothing: it watches again from where it is. A flow that waits asks again.
func (c *clientWatches) endSlowest() {
	now, looked := time.Now().UnixNano(), c.looked.Load()
	if now-looked < int64(watchEnds) || !c.looked.CompareAndSwap(looked, now) {
		return
	}
	safego.Go(&c.work, "end a watch", func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		var slowest *clientWatch
		longest := watchEnds
		for w := range c.open {
			if held, idle := w.flow.Held(); held > 0 && idle > longest {
				slowest, longest = w, idle
			}
		}
		if slowest != nil {
			slowest.cancel()
		}
	}, nil)
}

// Watch bounds what clients' watches hold. Berth's own are read without delay.
func (b *boundedStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if b.watches == nil || b.watches.account == nil || bounds.ReservationOf(ctx) == nil || inside.Is(ctx) {
		return b.Interface.Watch(ctx, key, opts)
	}
	account := b.watches.account
	if err := account.Take(bounds.Watches, 1); err != nil {
		return nil, b.tell(err)
	}
	if err := account.Take(bounds.MemoryBytes, bounds.IdleWatch); err != nil {
		account.Give(bounds.Watches, 1)
		return nil, b.tell(err)
	}
	w := &clientWatch{watches: b.watches, result: make(chan watch.Event)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	w.flow = hub.NewFlow(account, b.watches.endSlowest)
	opts.Predicate = onMismatch(opts.Predicate, func(object runtime.Object) { w.flow.Skip(revisionOf(object)) })
	inner, err := b.Interface.Watch(hub.WithFlow(w.ctx, w.flow), key, opts)
	if err != nil {
		w.end()
		return nil, b.tell(err)
	}
	b.watches.add(w)
	// Until its context ends, which is the request's.
	go safego.Run("hand on a watch", func() { w.run(inner) }, func(error) { w.cancel() })
	return w, nil
}

func (c *clientWatches) add(w *clientWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[*clientWatch]struct{}{}
	}
	c.open[w] = struct{}{}
}

func (c *clientWatches) remove(w *clientWatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, w)
}

// clientWatch hands events on one by one, and tells the store which were taken.
type clientWatch struct {
	watches *clientWatches
	flow    *hub.Flow
	ctx     context.Context
	cancel  context.CancelFunc
	result  chan watch.Event
}

func (w *clientWatch) run(inner watch.Interface) {
	defer close(w.result)
	defer w.end()
	defer inner.Stop()
	for event := range inner.ResultChan() {
		select {
		case w.result <- event:
			w.flow.Done(revisionOf(event.Object))
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *clientWatch) end() {
	w.watches.remove(w)
	w.cancel()
	w.flow.End()
	w.watches.account.Give(bounds.Watches, 1)
	w.watches.account.Give(bounds.MemoryBytes, bounds.IdleWatch)
}

func (w *clientWatch) ResultChan() <-chan watch.Event { return w.result }

func (w *clientWatch) Stop() { w.cancel() }

// revisionOf is the store's revision of an object; 0 if it has none.
func revisionOf(object runtime.Object) int64 {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return 0
	}
	revision, _ := strconv.ParseInt(accessor.GetResourceVersion(), 10, 64)
	return revision
}
