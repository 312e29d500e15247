// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package yield has long work let other goroutines run. Go itself takes a processor from a goroutine only after 10 ms.
package yield

import (
	"runtime"
	"sync/atomic"
	"time"
)

// every is how long work goes on at once. A goroutine that yields waits for all others that are ready to run, for 10 ms each
// if those do not yield: it must not do so too often.
const every = 2 * time.Millisecond

// Point is a point in some work that it passes again and again. Its zero value is ready. It is safe for concurrent use.
type Point struct {
	last atomic.Int64 // when it yielded, in nanoseconds of the clock
}

// Pass lets other goroutines run, if that was not done for 2 ms since it was passed first. If rest is not nil, it does that.
func (p *Point) Pass(rest func()) {
	now, last := time.Now().UnixNano(), p.last.Load()
	switch since := time.Duration(now - last); {
	case last == 0:
		p.last.Store(now)
	case since >= 0 && since < every: // or the clock was set back
	case p.last.CompareAndSwap(last, now):
		if rest == nil {
			runtime.Gosched()
		} else {
			rest()
		}
		p.last.Store(time.Now().UnixNano())
	}
}
