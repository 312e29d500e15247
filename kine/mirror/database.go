// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// openTimeout limits the opening, except for the reading of the rows.
	openTimeout = time.Minute
	// checkTimeout limits a question about who has the log.
	checkTimeout = 5 * time.Second
	// freshFor is how long reads of the cache are served after this process was known to have the log.
	freshFor = 2 * time.Second
)

// Database is the store of a space in a log, with a cache in a SQLite file.
type Database struct {
	*sqlite.Database // the cache

	log      Log
	owner    dbms.Owner
	path     string // of the cache
	max      int64  // bytes of the store
	expected *int64 // the epoch before the takeover; nil if any will do
	lock     io.Closer
	open     bool // the cache is open

	compaction compaction

	epoch      atomic.Int64
	generation int64

	// pending are the rows of the current transaction. unsure are those of a commit whose outcome is unknown. Both are those of
	// who has the connection that writes.
	pending, unsure []write

	// known is when this process last had the log, as the time since began.
	began time.Time
	known atomic.Int64
	mu    sync.Mutex
	check *check // that is running
}

// write is a row, with the values of the cache.
type write struct {
	Row
	values []any
}

type check struct {
	done chan struct{}
	err  error
}

// New returns the database of a space in a log, with a cache at path. max is how many bytes the store may have. Nothing is
// opened.
func New(log Log, owner dbms.Owner, path string, maxBytes int64) *Database {
	return &Database{Database: sqlite.NewCache(path), log: log, owner: owner, path: path, max: maxBytes, began: time.Now()}
}

func (d *Database) String() string { return d.log.String() }

// Epoch returns the number of the takeover by which this process has the log; 0 before it.
func (d *Database) Epoch() int64 { return d.epoch.Load() }

// Expect has Open and TakeOver fail with an ErrFenced if another process has taken the log over since the epoch was read.
func (d *Database) Expect(epoch int64) { d.expected = &epoch }

// TakeOver takes the log over, without a cache.
func (d *Database) TakeOver(ctx context.Context) error {
	_, err := d.takeOver(ctx)
	return err
}

func (d *Database) takeOver(ctx context.Context) (before State, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	now := time.Now()
	if before, err = d.log.TakeOver(ctx, d.expected); err != nil {
		return State{}, err
	}
	d.epoch.Store(before.Epoch + 1)
	d.generation = before.Generation
	d.knewAt(now)
	return before, nil
}

// Open takes the log over: an earlier process can't write to it any more, and serves no reads after freshFor. It opens the cache,
// or makes a new one, if it is not what this process's last takeover of the log has left.
func (d *Database) Open(ctx context.Context) (err error) {
	if err := os.MkdirAll(filepath.Dir(d.path), 0o700); err != nil {
		return err
	}
	if d.lock, err = sqlite.Take(d.path); err != nil {
		return err
	}
	before, err := d.takeOver(ctx)
	if err != nil {
		return err
	}
	current, last, err := d.openCache(ctx, before)
	if err != nil {
		return err
	}
	if !current {
		if err := d.rebuild(ctx, max(last, before.Revision)); err != nil {
			return fmt.Errorf("copy %s to %s: %w", d.log, d.path, err)
		}
		d.open = true
		if err := d.Database.Open(ctx); err != nil {
			return err
		}
	}
	return d.writeMark()
}

// Insert appends a row as the revision next. It fails with a TooLarge error if the log can't have it.
func (d *Database) Insert(_ context.Context, tx *sql.Tx, next int64, values []any) (id int64, exists bool, err error) {
	r := rowOf(next, values)
	if err := d.log.CheckSize(&r); err != nil {
		return 0, false, err
	}
	exists, err = d.InsertAt(tx, next, values)
	if err != nil || exists {
		return 0, exists, err
	}
	d.pending = append(d.pending, write{r, values})
	return next, false, nil
}

// rowOf returns the row of the values of kine's dialect: name, created, deleted, create_revision, prev_revision, lease, value.
func rowOf(revision int64, values []any) Row {
	r := Row{Revision: revision, Key: values[0].(string), Deleted: values[2].(int64) != 0, CreateRevision: values[3].(int64), Lease: values[5].(int64)}
	if values[1].(int64) != 0 {
		r.CreateRevision = revision
	}
	r.Value, _ = values[6].([]byte)
	return r
}

// Begin starts a transaction. Commit finds out whether another process has the log.
func (d *Database) Begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	tx, err := d.Database.Begin(ctx, conn)
	if err == nil {
		d.pending = nil
	}
	return tx, err
}

// Commit commits a transaction of Begin: first to the log, and then to the cache.
func (d *Database) Commit(ctx context.Context, tx *sql.Tx) error {
	rows := d.pending
	d.pending = nil
	if len(rows) == 0 {
		return tx.Commit() // of the cache alone
	}
	changes := make([]Row, len(rows))
	for i, w := range rows {
		changes[i] = w.Row
	}
	now := time.Now()
	if err := d.log.Append(ctx, changes); err != nil {
		if d.Fault(err) == dbms.Lost {
			d.unsure = rows
		}
		return err
	}
	d.knewAt(now)
	if err := tx.Commit(); err != nil {
		d.unsure = rows
		return &behindError{err}
	}
	d.compact()
	return nil
}

// behindError means that the cache lacks rows that are in the log. The database is unusable until Recover has written them.
type behindError struct{ err error }

func (e *behindError) Error() string { return "write to the cache of the store: " + e.err.Error() }
func (e *behindError) Unwrap() error { return e.err }

// Recover connects again, and writes to the cache what the log has of the last commit.
func (d *Database) Recover(ctx context.Context) (last int64, err error) {
	now := time.Now()
	state, err := d.log.Reconnect(ctx)
	if err != nil {
		return 0, err
	}
	d.knewAt(now)
	conn, err := d.Writer().Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.QueryRowContext(ctx, lastSQL).Scan(&last); err != nil {
		return 0, err
	}
	if state.Revision <= last {
		d.unsure = nil
		return state.Revision, nil
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	for _, r := range d.unsure {
		if r.Revision <= last || r.Revision > state.Revision {
			continue
		}
		if _, err := d.InsertAt(tx, r.Revision, r.values); err != nil {
			return 0, &behindError{err}
		}
		last = r.Revision
	}
	if last != state.Revision {
		return 0, fmt.Errorf("%w: its last revision is %d, which this process hasn't written", sqlite.ErrDamaged, state.Revision)
	}
	if err := tx.Commit(); err != nil {
		return 0, &behindError{err}
	}
	d.unsure = nil
	return last, nil
}

// Fresh fails if it is not certain that this process had the log within freshFor. Reads come from the cache, where another
// process's writes are not.
func (d *Database) Fresh(ctx context.Context) error {
	if time.Since(d.began)-time.Duration(d.known.Load()) < freshFor {
		return nil
	}
	d.mu.Lock()
	c := d.check
	if c == nil { // one check is for all who wait
		c = &check{done: make(chan struct{})}
		d.check = c
		d.mu.Unlock()
		checkCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		c.err = d.CheckEpoch(checkCtx)
		cancel()
		d.mu.Lock()
		d.check = nil
		close(c.done)
	}
	d.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CheckEpoch fails with an ErrFenced if another process has taken the log over.
func (d *Database) CheckEpoch(ctx context.Context) error {
	now := time.Now()
	epoch, err := d.log.Epoch(ctx)
	if err != nil {
		return err
	}
	if err := (&Meta{Epoch: epoch}).CheckEpoch(d.String(), d.epoch.Load()); err != nil {
		return err
	}
	d.knewAt(now)
	return nil
}

func (d *Database) knewAt(t time.Time) {
	at := int64(t.Sub(d.began))
	for known := d.known.Load(); known < at && !d.known.CompareAndSwap(known, at); known = d.known.Load() {
	}
}

// Release closes all connections until the next use. If the log is being compacted, it does so after that.
func (d *Database) Release() error {
	if d.compaction.postpone() {
		return nil
	}
	return d.release()
}

func (d *Database) release() error { return errors.Join(d.Database.Release(), d.log.Release()) }

// Close closes all connections. A cache that was found damaged is not used again.
func (d *Database) Close(sound bool) (err error) {
	d.compaction.stop()
	if d.open {
		if !sound || d.unsure != nil {
			err = d.removeMark()
		}
		err = errors.Join(err, d.Database.Close(sound))
	}
	err = errors.Join(err, d.log.Close())
	if d.lock != nil {
		err = errors.Join(err, d.lock.Close())
	}
	return err
}

// Fault classifies an error. Damage to the cache is no damage to the store, but lasts until it is opened again.
func (d *Database) Fault(err error) dbms.Fault {
	var behind *behindError
	switch {
	case err == nil:
		return dbms.None
	case errors.Is(err, dbms.ErrFenced):
		return dbms.Fenced
	case errors.Is(err, ErrTooLarge):
		return dbms.TooLarge
	case errors.As(err, &behind):
		return dbms.Lost
	case errors.Is(err, sqlite.ErrDamaged):
		return dbms.Damaged
	}
	if fault := d.log.Fault(err); fault != dbms.None {
		return fault
	}
	fault := d.Database.Fault(err)
	if fault == dbms.Damaged {
		return dbms.Unconfirmed
	}
	return fault
}
