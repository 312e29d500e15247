// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"runtime"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// restMost is how long work rests at most each time. It works for 2 ms before each, so it still has paceLeast.
	restMost = 18 * time.Millisecond
	// restTotal is how long the work of a request rests in all. API servers end a request after 60 s.
	restTotal = 5 * time.Second
)

// turn is what a request may use until it releases it. It is safe for concurrent use.
type turn struct {
	turns  *turns
	line   *line
	ticket *ticket
	// release gives it back. It may be called more than once.
	release func()

	// These are guarded by the turns.
	rested time.Duration
	lease  *time.Timer // nil if it has none
	until  time.Time   // the end of the lease
}

// endAfter has the turn end by end, which calls release, when its work has gone on for a lease, in which it didn't rest. stop must be called at the end of the work.
func (h *turn) endAfter(lease time.Duration, end func()) (stop func()) {
	h.turns.mu.Lock()
	defer h.turns.mu.Unlock()
	h.until, h.lease = time.Now().Add(lease), safego.AfterFunc(lease, "end a turn", end)
	return func() {
		h.turns.mu.Lock()
		defer h.turns.mu.Unlock()
		h.lease.Stop()
		h.lease = nil
	}
}

// rest lets other goroutines run, after the work has gone on for a while. If the tenant has had more than its share in a busy process, the
// work rests. It keeps what the tenant may use, so that none of the tenant's requests begins meanwhile, and leaves the total to others.
func (h *turn) rest() {
	t := h.turns
	began := time.Now()
	wait := h.beginRest(began)
	if wait == 0 {
		runtime.Gosched()
		return
	}
	<-time.After(wait)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if h.ticket.resting--; h.ticket.resting == 0 {
		t.resting--
		if !h.ticket.given {
			t.used += h.ticket.cost // even if that is more than the total, because it has its objects in memory
		}
	}
	h.ticket.at = now
	h.rested += now.Sub(began)
	if h.lease != nil && h.lease.Stop() { // only work counts
		h.until = h.until.Add(now.Sub(began))
		h.lease.Reset(time.Until(h.until))
	}
}

// beginRest charges the work so far, and returns how long it has to rest. If that is not 0, the caller must end the rest.
func (h *turn) beginRest(now time.Time) (wait time.Duration) {
	t, mine := h.turns, h.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	worked := now.Sub(mine.at)
	if mine.given {
		worked = 0 // it is charged by other means
	}
	wait, charged := t.pace.rest(h.line.tenant, worked)
	if charged {
		mine.at, mine.charged = now, true
	}
	full := mine.resting == 0 && t.resting >= t.total // those that rest have their objects in memory
	if wait == 0 || full || h.rested >= restTotal {
		return 0
	}
	if mine.resting++; mine.resting == 1 {
		t.resting++
		if !mine.given {
			t.used -= mine.cost
			t.grant()
		}
	}
	return wait
}
