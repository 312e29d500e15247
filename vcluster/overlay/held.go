// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
)

const (
	// roomPoll is how often a watch looks whether there is room for its next event, and roomLimit how long.
	roomPoll  = 200 * time.Millisecond
	roomLimit = 30 * time.Second
	// heldLimit is how long a watch holds the bytes of an event after which none follows: the API server doesn't say when it has sent an
	// event. A client that takes nothing for a minute loses its watch, so that it can't collect many.
	heldLimit = 10 * time.Second
)

// heldBytes are what the last event of a watch takes while the API server converts, encodes, and sends it. They count as
// [bounds.WatchBytes]. It is used by one goroutine, and nothing counts without an account.
type heldBytes struct {
	account *bounds.Account
	end     func() // of the last event
}

// room waits until an event may be sent, and takes its bytes. It returns false if there is no room for long, or if ctx ends. An event that is
// larger than all that a space may hold is sent alone.
func (h *heldBytes) room(ctx context.Context, size int64) bool {
	ctx, cancel := context.WithTimeout(ctx, roomLimit)
	defer cancel()
	for !h.account.TakeBeyond(bounds.WatchBytes, size) {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(roomPoll):
		}
	}
	return true
}

// keep holds the bytes of an event until give is called, or for a while.
func (h *heldBytes) keep(size int64) {
	if h.account == nil {
		return
	}
	give := sync.OnceFunc(func() { h.account.Give(bounds.WatchBytes, size) })
	timer := safego.AfterFunc(heldLimit, "give back what an event held", give)
	h.end = func() {
		timer.Stop()
		give()
	}
}

// give gives back what the last event holds.
func (h *heldBytes) give() {
	if h.end != nil {
		h.end()
		h.end = nil
	}
}
