// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// expiryBatch is how many keys with expired leases are deleted at once. They share commits.
	expiryBatch = 64
	// expiryRetry is the pause after keys could not be deleted.
	expiryRetry = 5 * time.Second

	// dueSQL finds keys with expired leases, after the lease and the revision that were processed last.
	dueSQL = `SELECT id, name, lease FROM kine
		WHERE lease > 0 AND lease <= ? AND (lease, id) > (?, ?) ORDER BY lease, id LIMIT ?`
	// nextSQL finds the next lease of an existing key, in its newest version.
	nextSQL = `SELECT lease FROM kine AS k
		WHERE lease > 0 AND (lease, id) > (?, ?) AND deleted = 0
			AND NOT EXISTS (SELECT 1 FROM kine WHERE name = k.name AND id > k.id)
		ORDER BY lease LIMIT 1`
)

// expiry deletes keys when their leases expire. In memory, it has only the time of the next one. The leases are in the
// file, with an index. A store without leases has no cost.
type expiry struct {
	clock  clock.WithDelayedExecution
	db     database
	health *health
	delete func(ctx context.Context, key string, revision int64) error
	enter  func() error // admits a round, or returns an error if the store is closed
	leave  func()

	mu        sync.Mutex
	timer     clock.Timer
	next      int64 // when the timer fires; 0 means never
	running   bool
	wanted    int64 // the earliest lease that was set during a round; 0 means none
	stopped   bool
	doneLease int64 // the last processed lease
	doneRev   int64 // the last processed revision of a key with this lease
}

// start finds the first lease.
func (e *expiry) start(ctx context.Context) error {
	next, err := e.find(ctx)
	if err == nil && next > 0 {
		e.set(next)
	}
	return err
}

// find returns when the next lease expires; 0 means never.
func (e *expiry) find(ctx context.Context) (next int64, err error) {
	e.mu.Lock()
	lease, rev := e.doneLease, e.doneRev
	e.mu.Unlock()
	ctx, cancel := withTimeout(ctx, e.db)
	defer cancel()
	err = e.db.Readers().DB.QueryRowContext(ctx, e.db.Adapt(nextSQL), lease, rev).Scan(&next)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return next, e.health.see(err)
}

// set makes sure that a round runs when a lease expires.
func (e *expiry) set(lease int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.stopped, e.next != 0 && e.next <= lease:
		return
	case e.running:
		if e.wanted == 0 || lease < e.wanted {
			e.wanted = lease // the round may already have read the next lease
		}
		return
	}
	e.next = lease
	e.arm(time.Unix(lease, 0).Sub(e.clock.Now()))
}

func (e *expiry) arm(after time.Duration) {
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = e.clock.AfterFunc(max(after, 0), func() { safego.Run("delete what has expired", e.round, nil) })
}

// round deletes the keys that have expired.
func (e *expiry) round() {
	if e.enter() != nil {
		return
	}
	defer e.leave()
	e.mu.Lock()
	e.running, e.next = true, 0
	e.mu.Unlock()
	err := e.deleteDue()
	var next int64
	if err == nil {
		next, err = e.find(context.Background())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if next == 0 || e.wanted > 0 && e.wanted < next {
		next = e.wanted
	}
	e.running, e.wanted = false, 0
	switch {
	case e.stopped:
	case err != nil:
		e.next = e.clock.Now().Add(expiryRetry).Unix()
		e.arm(expiryRetry)
	case next > 0:
		e.next = next
		e.arm(time.Unix(next, 0).Sub(e.clock.Now()))
	}
}

type dueKey struct {
	rev, lease int64
	key        string
}

func (e *expiry) deleteDue() error {
	for {
		due, err := e.due()
		if err != nil || len(due) == 0 {
			return err
		}
		var wg sync.WaitGroup
		errs := make([]error, len(due))
		for i, d := range due {
			safego.Go(&wg, "delete what has expired", func() { errs[i] = e.delete(context.Background(), d.key, d.rev) },
				func(err error) { errs[i] = err })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		last := due[len(due)-1]
		e.mu.Lock()
		e.doneLease, e.doneRev = last.lease, last.rev
		e.mu.Unlock()
	}
}

func (e *expiry) due() (due []dueKey, err error) {
	e.mu.Lock()
	lease, rev := e.doneLease, e.doneRev
	e.mu.Unlock()
	ctx, cancel := withTimeout(context.Background(), e.db)
	defer cancel()
	rows, err := e.db.Readers().DB.QueryContext(ctx, e.db.Adapt(dueSQL), e.clock.Now().Unix(), lease, rev, expiryBatch)
	if err != nil {
		return nil, e.health.see(err)
	}
	defer func() { err = e.health.see(errors.Join(err, rows.Err(), rows.Close())) }()
	for rows.Next() {
		var d dueKey
		if err := rows.Scan(&d.rev, &d.key, &d.lease); err != nil {
			return nil, err
		}
		due = append(due, d)
	}
	return due, nil
}

// stop prevents further rounds. A running one ends because its calls fail.
func (e *expiry) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	if e.timer != nil {
		e.timer.Stop()
	}
}

// NextExpiry returns when the lease of the next key, such as an event, expires; ok is false if there is none. A closed
// store deletes nothing. When it is opened after that time, it deletes the key.
func (s *Store) NextExpiry(ctx context.Context) (t time.Time, ok bool, err error) {
	b := s.engine.backend
	if err := b.enter(); err != nil {
		return time.Time{}, false, fmt.Errorf("find the next expiry in store %s: %w", s.path, err)
	}
	defer b.calls.Done()
	next, err := s.engine.expiry.find(ctx)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("find the next expiry in store %s: %w", s.path, err)
	}
	return time.Unix(next, 0), next > 0, nil
}
