// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podconn

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

const (
	// unknownTimeout is how long a caller may be unknown: a pod's containers start, and
	// call, before its kubelet tells the host's API which address it has.
	unknownTimeout = 4 * time.Second
	look           = 25 * time.Millisecond
	// Bounds of those who wait, for most of them are nobody.
	maxWaiting        = 1000
	maxWaitingAddress = 32
)

// Waiters are the callers whom nobody knows yet. The zero value is ready for use.
type Waiters struct {
	mu    sync.Mutex
	at    map[netip.Addr]int
	total int
}

// Wait returns the space of a caller as soon as it is known. ok is false if it
// is not known for a while, ctx ends, or there are too many who wait.
func (w *Waiters) Wait(ctx context.Context, addr netip.Addr, spaceAt func(netip.Addr) (string, bool)) (space string, ok bool) {
	if !w.take(addr) {
		return "", false
	}
	defer w.give(addr)
	ctx, cancel := context.WithTimeout(ctx, unknownTimeout)
	defer cancel()
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		if space, ok = spaceAt(addr); ok {
			return space, true
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return "", false
		}
	}
}

func (w *Waiters) take(addr netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= maxWaiting || w.at[addr] >= maxWaitingAddress {
		return false
	}
	if w.at == nil {
		w.at = map[netip.Addr]int{}
	}
	w.total++
	w.at[addr]++
	return true
}

func (w *Waiters) give(addr netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.at[addr]--; w.at[addr] == 0 {
		delete(w.at, addr)
	}
}
