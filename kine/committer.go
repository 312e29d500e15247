// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
)

// groupMax is the maximum number of rows in a commit. It limits how long the first row waits for the last.
const groupMax = 256

// committer appends rows. All rows that wait are written in one commit: during an fsync, the next group forms. No write
// is delayed to make a group larger, so a single writer has no cost.
type committer struct {
	db      database // has one connection that writes, so that compactions and checkpoints alternate with groups
	budget  *storeBudget
	objects objects
	// written is called after each commit.
	written func()
	health  *health
	link    link

	queue chan *row
	done  sync.WaitGroup
	// last is the revision of the last row on disk. wrote is signaled when it changes. Rows up to tried may be on disk.
	last   atomic.Int64
	tried  atomic.Int64
	wrote  chan struct{}
	writes atomic.Int64 // rows, including failed ones
	// latest is when rows were last written, as the time since began.
	began  time.Time
	latest atomic.Int64
}

type row struct {
	ctx   context.Context
	key   string
	value []byte
	frees bool // it frees space, or is part of an operation that does
	// creates and deletes say whether the row creates or deletes the key.
	creates, deletes bool
	args             []any

	id   int64
	err  error
	done chan struct{}
}

func newCommitter(ctx context.Context, db database, health *health, budget *storeBudget, objects objects, written func(), last int64) *committer {
	c := &committer{db: db, health: health, link: newLink(ctx), budget: budget, objects: objects, written: written, queue: make(chan *row, groupMax), wrote: make(chan struct{}, 1), began: time.Now()}
	c.last.Store(last)
	c.tried.Store(last)
	safego.Go(&c.done, "commit writes", c.run, nil)
	return c
}

// append returns the revision of the row when it is on disk. If its context ends first, the row may or may not be
// written.
func (c *committer) append(r *row) (int64, error) {
	ctx := r.ctx
	r.done = make(chan struct{})
	select {
	case c.queue <- r:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case <-r.done:
		return r.id, r.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// close waits for the remaining rows. append must not be called afterwards.
func (c *committer) close() {
	close(c.queue)
	c.done.Wait()
}

func (c *committer) run() {
	group := make([]*row, 0, groupMax)
	for first := c.next(); first != nil; first = c.next() {
		group = c.gather(append(group[:0], first))
		if err := safego.Call("commit writes", func() error { return c.commitOrReconnect(group) }); err != nil {
			for _, r := range group {
				r.id, r.err = 0, err
			}
		}
		for i, r := range group {
			close(r.done)
			group[i] = nil
		}
	}
}

func (c *committer) gather(group []*row) []*row {
	for len(group) < groupMax {
		select {
		case r, ok := <-c.queue:
			if !ok {
				return group
			}
			group = append(group, r)
		default:
			return group
		}
	}
	return group
}

// commit writes the group in one transaction. A row whose key has another version than expected fails alone. Any other
// error fails the whole group, and nothing is written.
func (c *committer) commit(group []*row) error {
	// The context must not be a caller's, because the group has rows of several callers.
	ctx, cancel := withTimeout(context.Background(), c.db)
	defer cancel()
	conn, err := c.db.Writer().Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // after the budget is set, so that a later measurement is not overwritten
	tx, err := c.db.Begin(ctx, conn)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit; after a panic, it releases the only connection
	last, grown, more := c.last.Load(), int64(0), numbers{}
	for _, r := range group {
		if r.err = r.ctx.Err(); r.err != nil {
			continue
		}
		size, ok := c.budget.admit(r, grown)
		if !ok {
			r.err = errNoSpace
			continue
		}
		counted := more
		if r.err = c.objects.admit(r, &counted); r.err != nil {
			continue
		}
		id, exists, err := c.db.Insert(ctx, tx, last+1, r.args)
		if errors.Is(err, mirror.ErrTooLarge) { // found before anything was written
			r.err = err
			continue
		}
		if err != nil {
			return err
		}
		if exists {
			r.err = kineserver.ErrKeyExists
			continue
		}
		r.id = id
		last, grown, more = max(last, r.id), grown+size, counted
	}
	used, free, err := c.db.Size(ctx, tx, c.budget.used.Load(), c.last.Load())
	if err == nil {
		c.latest.Store(int64(time.Since(c.began))) // before the commit returns, because readers may already see the rows
		c.tried.Store(last)
		c.link.inDoubt = true
		err = c.db.Commit(ctx, tx)
	}
	if err != nil {
		return err
	}
	c.link.inDoubt = false
	c.reached(last)
	c.latest.Store(int64(time.Since(c.began)))
	c.writes.Add(int64(len(group)))
	c.budget.set(used, free)
	c.objects.committed(more)
	c.written()
	c.signal()
	return nil
}

func (c *committer) signal() {
	select {
	case c.wrote <- struct{}{}:
	default: // already signaled, and not yet received
	}
}

// reached records a revision that is on disk. A reader may see it a moment before the commit has returned here, and the
// store must not report it as a future revision then.
func (c *committer) reached(rev int64) {
	for last := c.last.Load(); last < rev && !c.last.CompareAndSwap(last, rev); last = c.last.Load() {
	}
}

const (
	// firstPause and longestPause are the pauses between attempts to connect to a database again.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
	// connectLimit limits an attempt.
	connectLimit = 10 * time.Second
)

// link is the state of the committer's connection. Only the committer changes it.
type link struct {
	ctx context.Context // ends with the store
	// lost means that there is no connection. Reads and writes fail at once.
	lost atomic.Bool
	// inDoubt means that a commit may or may not have taken effect.
	inDoubt bool
	pause   time.Duration
	retry   *time.Timer
}

func newLink(ctx context.Context) link {
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	return link{ctx: ctx, retry: retry}
}

// next returns the next row to write, or nil when there will be no more. While there is no connection, it tries to connect.
func (c *committer) next() *row {
	for {
		var retry <-chan time.Time
		if c.link.lost.Load() {
			retry = c.link.retry.C
		}
		select {
		case r := <-c.queue:
			return r
		case <-retry:
			_ = c.reconnect() // the error is logged, and it tries again
		}
	}
}

// commitOrReconnect writes a group. If the connection turns out to be lost, it connects again, and writes the group if it can't
// be in the database yet. If a commit was sent, its outcome is unknown to the callers: clients find out by reading. What turns
// out to be committed is delivered to watches.
func (c *committer) commitOrReconnect(group []*row) error {
	if c.link.lost.Load() {
		return errUnreachable
	}
	c.link.inDoubt = false
	err := c.commit(group)
	if c.db.Fault(err) != dbms.Lost {
		return err
	}
	inDoubt := c.link.inDoubt
	c.link.lost.Store(true)
	c.link.pause = firstPause
	if c.reconnect() != nil || inDoubt {
		return err
	}
	for _, r := range group {
		r.id, r.err = 0, nil
	}
	if err = c.commit(group); c.db.Fault(err) == dbms.Lost {
		c.link.lost.Store(true)
		c.link.retry.Reset(c.link.pause)
	}
	return err
}

// reconnect connects again, and finds out which rows are in the database.
func (c *committer) reconnect() error {
	ctx, cancel := context.WithTimeout(c.link.ctx, connectLimit)
	defer cancel()
	last, err := c.db.Recover(ctx)
	if err == nil {
		err = c.catchUp(ctx, last)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, context.DeadlineExceeded)
		}
		_ = c.health.see(err)
		if _, bad := c.health.check(); bad == nil { // otherwise, nothing can be written until the store is opened again
			c.link.retry.Reset(c.link.pause)
			c.link.pause = min(2*c.link.pause, longestPause)
		}
		return err
	}
	c.link.lost.Store(false)
	c.health.reached()
	return nil
}

// catchUp records the rows of a commit whose outcome was unknown.
func (c *committer) catchUp(ctx context.Context, last int64) error {
	switch known := c.last.Load(); {
	case last == known:
		return nil
	case last < known: // a failover to a replica that was behind, for example
		return fmt.Errorf("%w: the database has lost acknowledged writes: its last revision is %d, and was %d; check its replication, or restore a snapshot",
			ErrDamaged, last, known)
	}
	counted, err := countObjects(ctx, c.db, c.objects.account)
	if err != nil {
		return err
	}
	if _, _, err := c.budget.measureAll(ctx); err != nil {
		return err
	}
	c.objects = counted
	c.tried.Store(max(last, c.tried.Load()))
	c.reached(last)
	c.latest.Store(int64(time.Since(c.began)))
	c.written()
	c.signal()
	return nil
}
