// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// idleAfter is how long a store must be unused until its connections are closed. Opening them again adds a millisecond
// or two to the next call.
const idleAfter = 15 * time.Second

// idler calls release when a store has not been used for a while. While the store stays idle, no timer runs; the next
// call sets it.
type idler struct {
	release func()

	used atomic.Bool // since the timer was set

	mu      sync.Mutex
	timer   *time.Timer
	set     atomic.Bool
	stopped bool
}

// touch records a call.
func (i *idler) touch() {
	if !i.used.Load() {
		i.used.Store(true)
	}
	if !i.set.Load() {
		i.arm()
	}
}

func (i *idler) arm() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped || i.set.Swap(true) {
		return
	}
	if i.timer == nil {
		i.timer = safego.AfterFunc(idleAfter, "let go of connections", i.look)
		return
	}
	i.timer.Reset(idleAfter)
}

func (i *idler) look() {
	i.set.Store(false)
	if i.used.Swap(false) {
		i.arm()
		return
	}
	i.release()
}

func (i *idler) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.stopped = true
	if i.timer != nil {
		i.timer.Stop()
	}
}
