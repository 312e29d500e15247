// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"github.com/mattn/go-sqlite3"

	"github.com/berth-dev/berth/internal/safego"
)

// groupMax is the maximum number of rows in a commit. It limits how long the first row waits for the last.
const groupMax = 256

// insertSQL appends a row, with a copy of the value that it replaces.
const insertSQL = `
	INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT value FROM kine WHERE id = ?5))`

// committer appends rows. All rows that wait are written in one commit: during an fsync, the next group forms. No write
// is delayed to make a group larger, so a single writer has no cost.
type committer struct {
	db      *sql.DB // has one connection, so that compactions and checkpoints alternate with groups
	budget  *storeBudget
	objects objects
	// written is called after each commit.
	written func()

	queue chan *row
	done  sync.WaitGroup
	// last is the revision of the last row on disk. wrote is signaled when it changes.
	last   atomic.Int64
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

func newCommitter(db *sql.DB, budget *storeBudget, objects objects, written func(), last int64) *committer {
	c := &committer{db: db, budget: budget, objects: objects, written: written, queue: make(chan *row, groupMax), wrote: make(chan struct{}, 1), began: time.Now()}
	c.last.Store(last)
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
	for first := range c.queue {
		group = c.gather(append(group[:0], first))
		if err := safego.Call("commit writes", func() error { return c.commit(group) }); err != nil {
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
	conn, err := c.db.Conn(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close() // after the budget is set, so that a later measurement is not overwritten
	tx, err := conn.BeginTx(context.Background(), nil)
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
		res, err := tx.Exec(insertSQL, r.args...)
		if isConflict(err) {
			r.err = kineserver.ErrKeyExists
			continue
		}
		if err == nil {
			r.id, err = res.LastInsertId()
		}
		if err != nil {
			return err
		}
		last, grown, more = max(last, r.id), grown+size, counted
	}
	used, free, err := pages(context.Background(), tx)
	if err == nil {
		c.latest.Store(int64(time.Since(c.began))) // before the commit returns, because readers may already see the rows
		err = tx.Commit()
	}
	if err != nil {
		return err
	}
	c.reached(last)
	c.latest.Store(int64(time.Since(c.began)))
	c.writes.Add(int64(len(group)))
	c.budget.set(used, free)
	c.objects.committed(more)
	c.written()
	select {
	case c.wrote <- struct{}{}:
	default: // already signaled, and not yet received
	}
	return nil
}

// reached records a revision that is on disk. A reader may see it a moment before the commit has returned here, and the
// store must not report it as a future revision then.
func (c *committer) reached(rev int64) {
	for last := c.last.Load(); last < rev && !c.last.CompareAndSwap(last, rev); last = c.last.Load() {
	}
}

func isConflict(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.ExtendedCode == sqlite3.ErrConstraintUnique
}
