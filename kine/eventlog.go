// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	kineserver "github.com/k3s-io/kine/pkg/server"
)

// eventLog is kine's log of changes, made strict: kine's own takes a read that broke off for a short one, and reads the
// revision of an empty list after the list, so that a key made in between is missed by a list and its watch.
type eventLog struct {
	*sqllog.SQLLog
	d      *dialect
	health *health

	compacting sync.Mutex
}

var _ logstructured.Log = (*eventLog)(nil)

// CurrentRevision is that of the last write on disk.
func (l *eventLog) CurrentRevision(context.Context) (int64, error) {
	return l.d.committer.last.Load(), nil
}

func (l *eventLog) CompactRevision(ctx context.Context) (int64, error) {
	rev, err := l.d.GetCompactRevision(ctx)
	return rev, l.health.see(err)
}

// List reads the newest version at a revision (0: now) of a key, or of those from key to end.
func (l *eventLog) List(ctx context.Context, key, end string, limit, revision int64, includeDeletes, keysOnly bool) (int64, kineserver.Events, error) {
	before := l.d.committer.last.Load()
	var rows *sql.Rows
	var err error
	if revision == 0 {
		rows, err = l.d.ListCurrent(ctx, key, end, limit, includeDeletes, keysOnly)
	} else {
		rows, err = l.d.List(ctx, key, end, limit, revision, includeDeletes, keysOnly)
	}
	rev, events, err := l.read(ctx, rows, err, before, revision, !keysOnly, false)
	if err == nil && revision > rev {
		return rev, nil, kineserver.ErrFutureRev
	}
	return rev, events, err
}

// After reads the changes after a revision, oldest first.
func (l *eventLog) After(ctx context.Context, key, end string, revision, limit int64) (int64, kineserver.Events, error) {
	before := l.d.committer.last.Load()
	rows, err := l.d.After(ctx, key, end, revision, limit)
	return l.read(ctx, rows, err, before, revision, true, true)
}

// read returns the rows and the store's revision they were read at, or at least the one before.
func (l *eventLog) read(ctx context.Context, rows *sql.Rows, err error, before, revision int64, val, prev bool) (int64, kineserver.Events, error) {
	if err != nil {
		return 0, nil, l.health.see(err)
	}
	rev, compacted, events, err := sqllog.RowsToEvents(rows, val, prev)
	if err = errors.Join(err, rows.Err()); err != nil {
		return 0, nil, l.health.see(err)
	}
	if len(events) == 0 {
		rev = before
		if revision > 0 { // rows bear the compacted revision; without any, it has to be asked for
			if compacted, err = l.CompactRevision(ctx); err != nil {
				return 0, nil, err
			}
		}
	}
	if revision > 0 && revision < compacted {
		return rev, nil, kineserver.ErrCompacted
	}
	return rev, events, nil
}

// Count of a past revision returns that revision with it. kine returns the newest, which it then gives a list's first
// page, so that the pages after show another moment than the first.
func (l *eventLog) Count(ctx context.Context, key, end string, revision int64) (int64, int64, error) {
	rev, n, err := l.SQLLog.Count(ctx, key, end, revision)
	if err == nil && revision > 0 {
		rev = revision
	}
	return rev, n, l.health.see(err)
}

func (l *eventLog) Append(ctx context.Context, event *kineserver.Event) (int64, error) {
	rev, err := l.SQLLog.Append(ctx, event)
	switch {
	case err == nil:
		l.health.written()
	case !errors.Is(err, kineserver.ErrKeyExists):
		err = l.health.see(err)
		noteFailure(ctx, err)
	}
	return rev, err
}

func (l *eventLog) DbSize(ctx context.Context) (int64, error) {
	var n int64
	err := l.d.DB.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
		FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`).Scan(&n)
	return n, l.health.see(err)
}

// Compact forgets versions that were superseded before a revision, but never the last compactRetain.
func (l *eventLog) Compact(ctx context.Context, revision int64) (int64, error) {
	l.compacting.Lock()
	defer l.compacting.Unlock()
	l.d.compactErr = nil
	rev, err := l.SQLLog.Compact(ctx, revision)
	if err == nil && l.d.compactErr != nil {
		err = l.health.see(l.d.compactErr)
	}
	return rev, err
}

// failure carries an append's error past kine's backend, which takes any error for a lost race and answers "conflict":
// on a full disk, clients would retry for ever.
type failure struct{ err error }

type failureKey struct{}

func withFailure(ctx context.Context) (context.Context, *failure) {
	f := &failure{}
	return context.WithValue(ctx, failureKey{}, f), f
}

func noteFailure(ctx context.Context, err error) {
	if f, ok := ctx.Value(failureKey{}).(*failure); ok {
		f.err = err
	}
}
