// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// tidyPause is the pause between two compactions of a store that is nearly full.
	tidyPause = time.Second
	// leaveTime limits the compaction of a store that is being closed. The rest is done later.
	leaveTime = time.Second
	// keptFree is how much of a file may stay free, in addition to an eighth of it, to be reused without allocating on
	// the disk.
	keptFree = 1 << 20
)

// DefaultHistory is how long replaced versions are kept: as long as with an API server's own compactions.
const DefaultHistory = 5 * time.Minute

// tidier compacts the store: versions that are older than its history, and more if it is nearly full. While nothing is
// written, it does nothing. (The API server's compactor would write every five minutes.)
type tidier struct {
	ctx     context.Context
	log     *eventLog
	budget  *storeBudget
	history time.Duration
	// compactable returns the revision up to which rows may go that a replica may need.
	compactable func() int64

	mu      sync.Mutex
	running bool
	again   bool
	stopped bool
	runs    sync.WaitGroup

	timer *time.Timer
	armed bool
	aged  bool  // the timer has fired
	mark  int64 // the last revision when it fired before that
}

// written schedules the compaction of what was written.
func (t *tidier) written() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed || t.stopped {
		return
	}
	t.armed = true
	if t.timer == nil {
		t.timer = safego.AfterFunc(t.history, "compact the store", t.age)
		return
	}
	t.timer.Reset(t.history)
}

func (t *tidier) age() {
	t.mu.Lock()
	t.armed, t.aged = false, true
	t.mu.Unlock()
	t.wake()
}

// wake starts a compaction if there is a reason. It does not wait for it.
func (t *tidier) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.again = true
	if t.running || t.stopped {
		return
	}
	t.running = true
	safego.Go(&t.runs, "compact the store", t.run, nil)
}

func (t *tidier) run() {
	for t.next() {
		if err := safego.Call("compact the store", t.tidy); err != nil && t.ctx.Err() == nil {
			t.budget.log.Error(err, "Could not compact the store; Berth retries after the next writes", "path", t.budget.db.String())
		}
		select {
		case <-t.ctx.Done():
		case <-time.After(tidyPause):
		}
	}
}

func (t *tidier) next() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = t.again && !t.stopped
	t.again = false
	return t.running
}

func (t *tidier) tidy() error {
	err := t.log.compactTo(t.ctx, t.target())
	if min(t.log.last(), t.compactable()+compactRetain) > t.log.compacted.Load()+compactRetain && t.ctx.Err() == nil {
		t.written() // more can be compacted later
	}
	return err
}

// target returns the revision up to which the store may be compacted now. A full store keeps no history: clients that
// watch or page through it have to list again. The last revision stays, because by it the store knows its current
// revision.
func (t *tidier) target() int64 {
	last, used := t.log.last(), t.budget.used.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	var target int64
	if t.aged {
		target, t.mark, t.aged = t.mark, last, false
	}
	switch {
	case t.budget.refused.Load(), used > t.budget.max/20*19:
		return last - 1
	case used > t.budget.max/10*9:
		target = last
	}
	return min(target, last-compactRetain, t.compactable())
}

// stop waits for a running compaction, and prevents further ones. Its context must have been canceled.
func (t *tidier) stop() {
	t.mu.Lock()
	t.stopped = true
	if t.timer != nil {
		t.timer.Stop()
	}
	t.mu.Unlock()
	t.runs.Wait()
}

// leave compacts a store that is about to be closed. Otherwise, a store that is never open for long would never be
// compacted.
func (t *tidier) leave() {
	target := min(t.log.last()-compactRetain, t.compactable())
	if _, bad := t.log.health.check(); bad != nil || target-t.log.compacted.Load() < compactRetain {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, leaveTime)
	defer cancel()
	if err := t.log.compactTo(ctx, target); err != nil && ctx.Err() == nil {
		t.budget.log.Error(err, "Could not compact the store before closing it", "path", t.budget.db.String())
	}
}

// shrink returns free space to the disk, a little at a time.
func (b *storeBudget) shrink(ctx context.Context) error {
	for {
		used, free, err := b.measure(ctx)
		if err != nil {
			return err
		}
		if free <= keptFree+used/8 {
			return nil
		}
		if some, err := b.db.Shrink(ctx, free); err != nil || !some {
			return err
		}
	}
}
