// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"
)

const (
	// tidyPause lies between two compactions of a store that is nearly full.
	tidyPause = time.Second
	// vacuumPages is how many pages are given back at once. Writers wait that long, some milliseconds.
	vacuumPages = 256
	// leaveTime is how long a store that is being closed may take for its compaction. The rest is done another time.
	leaveTime = time.Second
	// keptFree is how much of a file may be free, besides an eighth of it: what is free is reused without asking the disk.
	keptFree = 1 << 20
)

// tidier compacts a store that is nearly full, without waiting for its client to do it: the API server does every five
// minutes, and leaves as much behind as was written since.
type tidier struct {
	ctx  context.Context
	log  *eventLog
	room *room

	mu      sync.Mutex
	running bool
	again   bool
	runs    sync.WaitGroup
}

// wake sees to it that the store is compacted soon. It doesn't wait for it.
func (t *tidier) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.again = true
	if t.running || t.ctx.Err() != nil {
		return
	}
	t.running = true
	t.runs.Go(t.run)
}

func (t *tidier) run() {
	for t.next() {
		if err := t.tidy(); err != nil && t.ctx.Err() == nil {
			t.room.log.Error(err, "Compaction of a store that is nearly full failed", "path", t.room.path)
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
	t.running = t.again && t.ctx.Err() == nil
	t.again = false
	return t.running
}

// tidy forgets what can be. A store that refuses writes keeps no history at all: who watches or pages through it lists
// anew. The last revision stays, as it tells the store how far it is.
func (t *tidier) tidy() error {
	last := t.log.d.committer.last.Load()
	target := last - compactRetain
	if t.room.refused.Load() || t.room.used.Load() > t.room.max {
		target = last - 1
	}
	return t.log.compactTo(t.ctx, target)
}

// leave compacts a store that is about to be closed: one that is never open for long would never be.
func (t *tidier) leave() {
	target := t.log.d.committer.last.Load() - compactRetain
	if _, bad := t.log.health.check(); bad != nil || target-t.log.compacted.Load() < compactRetain {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, leaveTime)
	defer cancel()
	if err := t.log.compactTo(ctx, target); err != nil && ctx.Err() == nil {
		t.room.log.Error(err, "Compaction of a store that closes failed", "path", t.room.path)
	}
}

// vacuum gives free pages back to the disk, a few at a time.
func vacuum(ctx context.Context, db *sql.DB, room *room) error {
	for {
		used, free, err := pages(ctx, db)
		if err != nil {
			return err
		}
		room.set(used, free)
		if free <= keptFree+used/8 {
			return nil
		}
		// It takes a step for each page.
		rows, err := db.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", vacuumPages))
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		if err := rows.Err(); err != nil {
			_ = rows.Close()
			return err
		}
		if err := rows.Close(); err != nil {
			return err
		}
		if _, left, err := pages(ctx, db); err != nil || left >= free {
			return err // a file of kine's own can't shrink
		}
	}
}
