// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"runtime"
	"time"

	"k8s.io/utils/clock"
)

// queueClock is a clock for one kwok controller, whose queue of delayed work
// runs a loop that has no end. The loop asks the clock for a timer in each
// round, and that is where it ends once ctx has: it is woken, and on its next
// call leaves its goroutine.
//
// Of a kwok controller, only that loop calls After.
type queueClock struct {
	clock.RealClock
	ctx   context.Context
	ended chan struct{} // closed when the loop has ended
}

func newQueueClock(ctx context.Context) *queueClock {
	return &queueClock{ctx: ctx, ended: make(chan struct{})}
}

// After fires after d, or when the clock's context ends if that is sooner.
func (c *queueClock) After(d time.Duration) <-chan time.Time {
	if c.ctx.Err() != nil {
		close(c.ended)
		runtime.Goexit()
	}
	fired := make(chan time.Time, 1)
	fire := func() {
		select {
		case fired <- time.Now():
		default: // the other of the two has fired
		}
	}
	unhook := context.AfterFunc(c.ctx, fire)
	time.AfterFunc(d, func() {
		unhook()
		fire()
	})
	return fired
}
