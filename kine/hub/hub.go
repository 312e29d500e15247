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
	// FeedEvents is the maximum number of changes that are read from the log at once for all watches.
	FeedEvents = 500
	// FeedBytes is their maximum size.
	FeedBytes = 1 << 20
	// feedRetry is the pause after changes could not be read.
	feedRetry = time.Second
	// progressInterval is how long a watch with progress notifications may wait for one while other keys change.
	progressInterval = 5 * time.Second
	// logReaders is how many watches read the log at once. Others wait, because the store has few readers.
	logReaders = 2
)

// changesFunc reads the changes after a revision of a key, or of the keys from key to end ("" means all), oldest first.
// more means that it stopped at a limit. It fails with kineserver.ErrCompacted if some of the changes have been
// compacted.
type changesFunc func(ctx context.Context, key, end string, after int64) (changes []*clientv3.Event, more bool, err error)

// Hub delivers each change to the watches that want it. One goroutine reads committed changes, once for all watches,
// and only after a commit, so that an idle store has no cost. (kine polls every second, uses three goroutines for each
// watch, and can report a revision to a client before it has delivered all events up to it.)
type Hub struct {
	changes changesFunc
	last    func() int64    // returns the revision of the last write
	ctx     context.Context // for what the watches read by themselves
	runs    sync.WaitGroup  // the watches that read by themselves
	readers chan struct{}   // has an element for each watch that reads

	mu       sync.Mutex
	rev      int64 // all changes up to it have been delivered
	watches  map[*Watch]struct{}
	closed   bool
	asked    int64       // the revision from which on progress must be reported to all; 0 means none
	progress *time.Timer // reports progress after changes of other keys
	waiting  bool        // progress is set
}

// New returns a hub where all changes up to rev have been delivered.
func New(ctx context.Context, rev int64, changes changesFunc, last func() int64) *Hub {
	h := &Hub{ctx: ctx, rev: rev, changes: changes, last: last,
		readers: make(chan struct{}, logReaders), watches: map[*Watch]struct{}{}}
	h.progress = safego.AfterFunc(time.Hour, "tell progress", h.TellProgress)
	h.progress.Stop()
	return h
}

// Run delivers changes to the watches until the hub's context ends. wrote is signaled when there are new ones.
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
		// No change of this batch can be delivered. The watches find that out by themselves, and report it to their
		// clients.
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

// giveUp skips the changes up to a revision, one of which made the delivery panic, because it would do so again. The
// watches end as if these changes were compacted: their clients list again, and find the result of the changes.
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

// skip skips changes if there are no watches.
func (h *Hub) skip() (from int64, skipped bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.watches) > 0 {
		return h.rev, false
	}
	h.rev = max(h.rev, h.last())
	return h.rev, true
}

// moved reports progress if it was requested, or schedules that. The hub must be locked.
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

// AskProgress makes the hub report progress to each watch that wants it and has all changes so far.
func (h *Hub) AskProgress() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.last(); h.rev < last {
		h.asked = last
		return
	}
	h.sendProgress()
}

// TellProgress reports the revision to watches that want it and have not got it yet.
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
	default: // it has not taken the previous response yet
	}
}

// Close ends all watches, and waits for their goroutines.
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

// Count returns the number of watches.
func (h *Hub) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watches)
}
