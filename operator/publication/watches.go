// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/internal/safego"
)

// watchTimeout limits the time of a request that watches.
const watchTimeout = 2 * time.Minute

// watches are the watches of all publications' sources: one for each selection, however many publications have it. A watch
// ends when no publication needs it any more. It is a Runnable of controller-runtime.
type watches struct {
	client dynamic.Interface
	clock  clock.PassiveClock
	// timeout is after how long a watch is requested anew. An API server keeps the watch of a kind whose definition was deleted,
	// and sends nothing more, even if the kind is defined again.
	timeout time.Duration
	ctx     context.Context // of the watches, which outlive a reconcile
	cancel  context.CancelFunc
	group   sync.WaitGroup

	mu    sync.Mutex
	of    map[selection]*watch
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newWatches(client dynamic.Interface, clock clock.PassiveClock) *watches {
	ctx, cancel := context.WithCancel(context.Background())
	return &watches{client: client, clock: clock, timeout: watchTimeout, ctx: ctx, cancel: cancel, of: map[selection]*watch{}}
}

// Start ends the watches when ctx ends, and waits for them.
func (w *watches) Start(ctx context.Context) error {
	<-ctx.Done()
	w.mu.Lock()
	w.cancel()
	w.mu.Unlock()
	w.group.Wait()
	return nil
}

// enqueueTo sets the queue of the publications to reconcile.
func (w *watches) enqueueTo(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = queue
	return nil
}

// use returns the watches that a publication has from now on, and ends those that no publication has any more.
func (w *watches) use(publication string, wanted []selection) map[selection]*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := map[selection]*watch{}
	for _, selected := range wanted {
		if w.ctx.Err() != nil {
			break
		}
		started, ok := w.of[selected]
		if !ok {
			started = w.start(selected)
		} else if started.expired() {
			users := started.users
			started = w.start(selected)
			maps.Copy(started.users, users)
		}
		started.users[publication] = true
		have[selected] = started
	}
	for selected, other := range w.of {
		if have[selected] != nil {
			continue
		}
		if delete(other.users, publication); len(other.users) == 0 {
			other.stop()
			delete(w.of, selected)
		}
	}
	return have
}

// start starts a watch. The caller holds mu.
func (w *watches) start(selected selection) *watch {
	ctx, cancel := context.WithCancel(w.ctx)
	started := &watch{selection: selected, clock: w.clock, timeout: w.timeout, stop: cancel, users: map[string]bool{}, entries: map[string]entry{}}
	started.changed = func() { w.enqueue(started) }
	w.of[selected] = started
	safego.Go(&w.group, "watch sources of publications", func() { started.run(ctx, w.client) }, func(err error) { started.note(ctx, &started.listErr, err) })
	return started
}

func (w *watches) enqueue(changed *watch) {
	w.mu.Lock()
	users, queue := maps.Clone(changed.users), w.queue
	w.mu.Unlock()
	if queue == nil {
		return
	}
	for name := range users {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

// count returns how many watches there are.
func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.of)
}
