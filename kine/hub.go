// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"sync"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
)

const (
	// feedBatch is how many changes are read at once for the watches.
	feedBatch = 500
	// backlog is how many batches a watch may lie behind before it is ended, as etcd and kine do; its client lists anew.
	backlog = 100
	// feedRetry is the pause after changes could not be read.
	feedRetry = time.Second
)

// hub hands each change to the watches it is for. One goroutine reads what was committed, once for all watches, and only
// when something was: a store where nothing is written costs nothing. (kine polls every second, takes three goroutines a
// watch, and can tell a watch's client that it has seen a revision of which an event is still under way to it.)
type hub struct {
	read func(ctx context.Context, key, end string, revision, limit int64) (int64, kineserver.Events, error)
	last func() int64

	mu      sync.Mutex
	moved   *sync.Cond
	rev     int64 // up to which every change has been handed on
	watches map[*watch]struct{}
	closed  bool
}

type watch struct {
	key, end string
	from     int64 // the first revision wanted
	out      chan []*kineserver.Event

	started bool
	pending []*kineserver.Event // until it is started
}

func newHub(rev int64) *hub {
	h := &hub{rev: rev, watches: map[*watch]struct{}{}}
	h.moved = sync.NewCond(&h.mu)
	return h
}

// run feeds the watches until ctx ends. wrote tells that there is something new.
func (h *hub) run(ctx context.Context, wrote <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wrote:
		}
		for h.last() > h.reached() {
			err := h.feed(ctx)
			if err == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(feedRetry):
			}
		}
	}
}

func (h *hub) feed(ctx context.Context) error {
	last, from := h.last(), h.reached()
	_, events, err := h.read(ctx, "", "", from, feedBatch)
	switch {
	case errors.Is(err, kineserver.ErrCompacted):
		// What should have been handed on is forgotten: no watch can go on.
		h.endAll()
	case err != nil:
		return err
	case len(events) == feedBatch:
		last = events[len(events)-1].KV.ModRevision
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches {
		h.hand(w, events)
	}
	h.rev = max(h.rev, last, newest(events))
	h.moved.Broadcast()
	return nil
}

// hand gives a watch those of the events that are for it. The hub is locked.
func (h *hub) hand(w *watch, events []*kineserver.Event) {
	var matched []*kineserver.Event
	for _, e := range events {
		if e.KV.ModRevision >= w.from && e.InRange(w.key, w.end) {
			matched = append(matched, e)
		}
	}
	switch {
	case len(matched) == 0:
	case !w.started:
		w.pending = append(w.pending, matched...)
	default:
		select {
		case w.out <- matched:
		default:
			h.end(w)
		}
	}
}

// subscribe makes a watch that gathers changes until it is started, and ends with ctx. since is the revision after which
// changes come from the hub.
func (h *hub) subscribe(ctx context.Context, key, end string, from int64) (w *watch, since int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w = &watch{key: key, end: end, from: max(from, h.rev+1), out: make(chan []*kineserver.Event, backlog)}
	if h.closed {
		close(w.out)
		return w, h.rev
	}
	h.watches[w] = struct{}{}
	context.AfterFunc(ctx, func() { h.drop(w) })
	return w, h.rev
}

// start lets the watch have what came before it, and then what comes.
func (h *hub) start(w *watch, before []*kineserver.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.watches[w]; !ok {
		return
	}
	if first := append(before, w.pending...); len(first) > 0 {
		w.out <- first // nothing is in it yet
	}
	w.started, w.pending = true, nil
}

// end closes a watch's channel. The hub is locked.
func (h *hub) end(w *watch) {
	if _, ok := h.watches[w]; ok {
		delete(h.watches, w)
		close(w.out)
	}
}

func (h *hub) drop(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(w)
}

func (h *hub) endAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watches {
		h.end(w)
	}
}

// close ends all watches, and the waiting.
func (h *hub) close() {
	h.endAll()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	h.moved.Broadcast()
}

func (h *hub) reached() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rev
}

// wait returns when all changes up to rev have been handed on, or the hub is closed.
func (h *hub) wait(rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.rev < rev && !h.closed {
		h.moved.Wait()
	}
}

func newest(events []*kineserver.Event) int64 {
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].KV.ModRevision
}
