// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// watchBuffer is how many responses a watch's channel holds until its client takes them.
	watchBuffer = 4
	// watchQueue is how many bytes of a watch may wait in memory. Further changes are read from the log after the
	// client has taken these.
	watchQueue = 1 << 20
)

// Watch is one client's watch. While its client keeps up, it needs no goroutine. A watch that falls behind, or begins
// in the past, has a goroutine that waits for the client and reads the log. A slow client delays nobody, and misses
// nothing until the changes are compacted.
type Watch struct {
	Key, End          string
	From              int64 // the first revision that the client wants
	NoPuts, NoDeletes bool
	Progress          bool
	Flow              *Flow // nil if the client is trusted to take everything
	Out               chan clientv3.WatchResponse
	ended             chan struct{}
	leave             func() bool // stops waiting for the end of the client's context

	// The hub's mutex guards the following fields.
	told   int64 // the last revision that the client got
	busy   bool  // it has a goroutine, which may close and send to Out
	queue  []clientv3.WatchResponse
	queued int
	next   int64 // if not 0, changes from this revision on must be read from the log
	gone   int64 // if not 0, changes before this revision are compacted, so that the watch ends with that error
}

// response returns a response at a revision.
func response(rev int64, events ...*clientv3.Event) clientv3.WatchResponse {
	return clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: rev}, Events: events}
}

// Add starts a watch that ends with ctx. created says whether its client gets a response for that.
func (h *Hub) Add(ctx context.Context, w *Watch, created bool) {
	w.Out, w.ended = make(chan clientv3.WatchResponse, watchBuffer), make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	w.told = h.rev
	if h.closed || ctx.Err() != nil {
		close(w.Out)
		return
	}
	if created {
		first := response(h.rev)
		first.Created = true
		w.Out <- first
	}
	if w.From == 0 {
		w.From = h.last() + 1
	}
	h.watches[w] = struct{}{}
	w.leave = context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(w)
	})
	if w.From <= h.rev {
		h.fallBehind(w, w.From)
	}
}

// hand delivers to a watch those of the changes that it wants. The hub must be locked.
func (h *Hub) hand(w *Watch, events []*clientv3.Event) {
	if w.next > 0 || w.gone > 0 {
		return // the watch reads them from the log, or lists again
	}
	events = w.wanted(events)
	if len(events) == 0 {
		return
	}
	size := sizeOfEvents(events)
	if w.queued+size > watchQueue && w.busy || !w.Flow.take(changesOf(events)) {
		h.fallBehind(w, events[0].Kv.ModRevision)
		return
	}
	r := response(events[len(events)-1].Kv.ModRevision, events...)
	if !w.busy {
		select {
		case w.Out <- r:
			w.told = r.Header.Revision
			return
		default:
		}
	}
	w.queue = append(w.queue, r)
	w.queued += size
	h.runWatch(w)
}

// fallBehind makes a watch read the changes from a revision on from the log. The hub must be locked.
func (h *Hub) fallBehind(w *Watch, from int64) {
	if w.next == 0 {
		w.next = from
	}
	h.runWatch(w)
}

func (h *Hub) runWatch(w *Watch) {
	if !w.busy {
		w.busy = true
		safego.Go(&h.runs, "serve a watch", func() { h.serve(w) }, func(error) { h.abandon(w) })
	}
}

// expire ends a watch, after its waiting responses, as if the following changes were compacted. The hub must be locked.
func (h *Hub) expire(w *Watch) {
	w.gone = h.rev + 1
	h.runWatch(w)
}

// abandon ends a watch after a panic of its goroutine. Its client must not continue from the same revision, where it
// would panic again.
func (h *Hub) abandon(w *Watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, on := h.watches[w]; !on {
		close(w.Out) // the goroutine would have closed it
		return
	}
	w.busy = false
	if w.gone == 0 {
		w.queue, w.queued = nil, 0
		h.expire(w)
		return
	}
	h.end(w)
}

// serve delivers waiting responses to a watch's client, until there are none or the watch ends.
func (h *Hub) serve(w *Watch) {
	for {
		r, ok := h.pull(w)
		if !ok {
			return
		}
		select {
		case w.Out <- r:
		case <-w.ended:
		}
	}
}

// pull returns the next response for a watch. It returns false if there is none. The watch then no longer has a
// goroutine, so the caller must return.
func (h *Hub) pull(w *Watch) (clientv3.WatchResponse, bool) {
	for {
		h.mu.Lock()
		_, on := h.watches[w]
		switch {
		case !on:
			close(w.Out)
		case len(w.queue) > 0:
			r := w.queue[0]
			w.queue[0] = clientv3.WatchResponse{}
			w.queue = w.queue[1:]
			w.queued -= sizeOfEvents(r.Events)
			w.told = r.Header.Revision
			h.mu.Unlock()
			return r, true
		case w.gone > 0:
			gone := w.gone
			h.mu.Unlock()
			h.fail(w, CompactedError{gone})
			continue
		case w.next > 0:
			from, to := w.next, h.rev
			h.mu.Unlock()
			if r, some := h.readFor(w, from, to); some {
				return r, true
			}
			continue
		default:
			w.busy, w.queue = false, nil
		}
		h.mu.Unlock()
		return clientv3.WatchResponse{}, false
	}
}

// readFor reads changes for a watch from the log, up to a revision that the hub has reached.
func (h *Hub) readFor(w *Watch, from, to int64) (clientv3.WatchResponse, bool) {
	w.Flow.ready(h.ctx, w.ended)
	select {
	case h.readers <- struct{}{}:
	case <-w.ended:
		return clientv3.WatchResponse{}, false
	}
	events, more, err := h.readAs(w, from)
	if errors.Is(err, errFlow) {
		return clientv3.WatchResponse{}, false
	}
	if err != nil {
		return h.fail(w, err)
	}
	for len(events) > 0 && events[len(events)-1].Kv.ModRevision > to {
		events, more = events[:len(events)-1], false
	}
	if more {
		to = events[len(events)-1].Kv.ModRevision
	}
	events = w.wanted(events)
	if !w.Flow.take(changesOf(events)) {
		return clientv3.WatchResponse{}, false // it is read again when it fits
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w.next = to + 1
	if w.next > h.rev {
		w.next = 0 // the hub delivers the rest
	}
	if len(events) == 0 {
		return clientv3.WatchResponse{}, false
	}
	w.told = events[len(events)-1].Kv.ModRevision
	return response(w.told, events...), true
}

// readAs reads changes from the log for a watch that has a reader, and releases the reader.
func (h *Hub) readAs(w *Watch, from int64) ([]*clientv3.Event, bool, error) {
	defer func() { <-h.readers }()
	if !w.Flow.admits() {
		return nil, false, errFlow
	}
	return h.changes(h.ctx, w.Key, w.End, from-1)
}

// fail ends a watch whose changes can't be read. If they are compacted, its client gets that error, and lists again.
// Otherwise, the client may continue from where it is.
func (h *Hub) fail(w *Watch, err error) (clientv3.WatchResponse, bool) {
	var compacted CompactedError
	if !errors.As(err, &compacted) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.end(w)
		return clientv3.WatchResponse{}, false
	}
	r := response(h.reached())
	r.Canceled, r.CompactRevision = true, compacted.Revision
	select {
	case w.Out <- r:
	case <-w.ended:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(w)
	return clientv3.WatchResponse{}, false
}

// end ends a watch. The hub must be locked.
func (h *Hub) end(w *Watch) {
	if _, on := h.watches[w]; !on {
		return
	}
	delete(h.watches, w)
	w.leave()
	close(w.ended)
	if !w.busy {
		close(w.Out)
	}
}

// wanted returns those of the events that the watch wants.
func (w *Watch) wanted(events []*clientv3.Event) []*clientv3.Event {
	var out []*clientv3.Event
	for i, e := range events {
		switch {
		case !w.wants(e):
			if out == nil {
				out = append(make([]*clientv3.Event, 0, i), events[:i]...)
			}
		case out != nil:
			out = append(out, e)
		}
	}
	if out == nil {
		return events // all of them, or none
	}
	return out
}

// wants does not convert the key to a string, because it is called for each watch and each event.
func (w *Watch) wants(e *clientv3.Event) bool {
	switch {
	case e.Kv.ModRevision < w.From,
		w.NoPuts && e.Type == clientv3.EventTypePut,
		w.NoDeletes && e.Type == clientv3.EventTypeDelete:
		return false
	case w.End == "":
		return string(e.Kv.Key) == w.Key || w.Key == sqlite.CompactRevRow && string(e.Kv.Key) == sqlite.CompactRevKey
	}
	return string(e.Kv.Key) >= w.Key && string(e.Kv.Key) < w.End
}

// sizeOfEvents estimates how many bytes of memory events take.
func sizeOfEvents(events []*clientv3.Event) int {
	n := 0
	for _, e := range events {
		n += sizeOfEvent(e)
	}
	return n
}

func sizeOfEvent(e *clientv3.Event) int {
	n := 256 + len(e.Kv.Value) // the previous value is the value of another event
	if e.PrevKv != nil {
		n += len(e.PrevKv.Value)
	}
	return n
}

// CompactedError is kineserver.ErrCompacted with the revision before which changes are compacted.
type CompactedError struct{ Revision int64 }

func (CompactedError) Error() string { return kineserver.ErrCompacted.Error() }
func (CompactedError) Unwrap() error { return kineserver.ErrCompacted }
