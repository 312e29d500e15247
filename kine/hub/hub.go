// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// FeedEvents is how many changes are read of the log at once for the watches, at most.
	FeedEvents = 500
	// FeedBytes is how large these are, at most.
	FeedBytes = 1 << 20
	// feedRetry is the pause after changes could not be read.
	feedRetry = time.Second
	// progressInterval is how long a watch that wants to know how far it is may wait for it while others' keys change.
	progressInterval = 5 * time.Second
	// logReaders is how many watches read the log at once. The others wait: the store has few readers.
	logReaders = 2
)

// changesFunc reads the changes after a revision of a key, or of those from key to end ("": all), oldest first. more
// tells that it stopped at a bound. It fails with kineserver.ErrCompacted if some of them are forgotten.
type changesFunc func(ctx context.Context, key, end string, after int64) (changes []*clientv3.Event, more bool, err error)

// Hub hands each change to the watches it is for. One goroutine reads what was committed, once for all watches, and only
// when something was: a store where nothing is written costs nothing. (kine polls every second, takes three goroutines a
// watch, and can tell a watch's client that it has seen a revision of which an event is still under way to it.)
type Hub struct {
	changes changesFunc
	last    func() int64    // the revision of the last write
	ctx     context.Context // of what the watches read for themselves
	runs    sync.WaitGroup  // the watches that do
	readers chan struct{}   // holds one for each that reads

	mu       sync.Mutex
	rev      int64 // up to which every change has been handed on
	watches  map[*Watch]struct{}
	closed   bool
	asked    int64       // the revision from which on progress is to be told to all; 0: none
	progress *time.Timer // tells progress after changes of others' keys
	waiting  bool        // progress is set
}

// New makes a hub where everything up to rev has been handed on.
func New(ctx context.Context, rev int64, changes changesFunc, last func() int64) *Hub {
	h := &Hub{ctx: ctx, rev: rev, changes: changes, last: last,
		readers: make(chan struct{}, logReaders), watches: map[*Watch]struct{}{}}
	h.progress = safego.AfterFunc(time.Hour, "tell progress", h.TellProgress)
	h.progress.Stop()
	return h
}

// Run feeds the watches until the hub's context ends. wrote tells that there is something new.
func (h *Hub) Run(wrote <-chan struct{}) {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-wrote:
		}
		for h.last() > h.reached() {
			last := h.last()
			var err error
			safego.Run("hand on changes", func() { err = h.feed() }, func(error) { h.giveUp(last) })
			if err == nil {
				continue
			}
			select {
			case <-h.ctx.Done():
				return
			case <-time.After(feedRetry):
			}
		}
	}
}

func (h *Hub) feed() error {
	from, idle := h.skip()
	if idle {
		return nil
	}
	last := h.last()
	events, more, err := h.changes(h.ctx, "", "", from)
	switch {
	case errors.Is(err, kineserver.ErrCompacted):
		// Nothing of it can be handed on. The watches, which find out by themselves, say so to their clients.
	case err != nil:
		return err
	case more:
		last = events[len(events)-1].Kv.ModRevision
	case len(events) > 0:
		last = max(last, events[len(events)-1].Kv.ModRevision)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches {
		if err != nil {
			h.fallBehind(w, from+1)
		} else {
			h.hand(w, events)
		}
	}
	h.rev = max(h.rev, last)
	h.moved()
	return nil
}

// giveUp passes over the changes up to a revision, one of which has made the feed panic: it would do so each time. The
// watches end as if these changes were compacted: their clients list anew, and find what the changes have led to.
func (h *Hub) giveUp(last int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev = max(h.rev, last)
	for w := range h.watches {
		if w.From <= h.rev {
			h.expire(w)
		}
	}
	h.moved()
}

// skip passes over what nobody watches.
func (h *Hub) skip() (from int64, skipped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watches) > 0 {
		return h.rev, false
	}
	h.rev = max(h.rev, h.last())
	return h.rev, true
}

// moved tells progress if it was asked for, or sees to it that it is told in a while. The hub is locked.
func (h *Hub) moved() {
	if h.asked > 0 && h.rev >= h.asked {
		h.asked = 0
		h.sendProgress()
	}
	if h.waiting || h.closed {
		return
	}
	for w := range h.watches {
		if w.Progress && w.told < h.rev {
			h.waiting = true
			h.progress.Reset(progressInterval)
			return
		}
	}
}

// AskProgress sees to it that each watch that wants it and has had everything so far is told so.
func (h *Hub) AskProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.last(); h.rev < last {
		h.asked = last
		return
	}
	h.sendProgress()
}

// TellProgress tells the revision to watches that want to know it, unless they have had it.
func (h *Hub) TellProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = false
	for w := range h.watches {
		if w.told < h.rev {
			h.sendProgressTo(w)
		}
	}
}

func (h *Hub) sendProgress() {
	for w := range h.watches {
		h.sendProgressTo(w)
	}
}

func (h *Hub) sendProgressTo(w *Watch) {
	if !w.Progress || w.busy {
		return
	}
	select {
	case w.Out <- response(h.rev):
		w.told = h.rev
	default: // it has not taken yet what came before
	}
}

// Close ends all watches, and waits for what they run.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.progress.Stop()
	for w := range h.watches {
		h.end(w)
	}
	h.mu.Unlock()
	h.runs.Wait()
}

func (h *Hub) reached() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rev
}

// Count returns how many watches there are.
func (h *Hub) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches)
}
