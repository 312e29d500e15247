// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"sync"
	"time"
)

// Arrivals are the requests that wait until this shard serves their spaces, which are already to be here by their objects. The zero value is
// ready to use. It is safe for concurrent use.
type Arrivals struct {
	mu     sync.Mutex
	spaces map[string]*arrival
}

type arrival struct {
	moves  int64
	until  time.Time
	served chan struct{} // closed when the space is served
	held   int           // guarded by Arrivals.mu
}

// Wait returns a function that waits until a space is served after so many moves, and reports whether it is. Requests to a space wait until
// heldFor after the first one, maxHeld of them at most: by whom they are isn't known while the keys of the space aren't used here yet.
func (a *Arrivals) Wait(space string, moves int64) func(context.Context) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.spaces[space]
	if one == nil || one.moves != moves {
		if a.spaces == nil {
			a.spaces = map[string]*arrival{}
		}
		one = &arrival{moves: moves, until: time.Now().Add(heldFor), served: make(chan struct{})}
		a.spaces[space] = one
	}
	return func(ctx context.Context) bool { return a.wait(ctx, one) }
}

func (a *Arrivals) wait(ctx context.Context, one *arrival) bool {
	if !a.hold(one, 1) {
		return false
	}
	defer a.hold(one, -1)
	ctx, cancel := context.WithDeadline(ctx, one.until)
	defer cancel()
	select {
	case <-one.served:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *Arrivals) hold(one *arrival, more int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one.held+more > maxHeld {
		return false
	}
	one.held += more
	return true
}

// Served lets the requests to a space go on.
func (a *Arrivals) Served(space string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.spaces[space]; one != nil {
		close(one.served)
		delete(a.spaces, space)
	}
}
