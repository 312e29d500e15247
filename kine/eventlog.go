// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/hub"
)

// eventLog is kine's log of changes, made strict: kine's own takes a read that broke off for a short one, and reads the
// revision of an empty list after the list, so that a key made in between is missed by a list and its watch.
type eventLog struct {
	*sqllog.SQLLog
	d      *dialect
	health *health
	idle   *idler
	// reading holds one for each reader that reads.
	reading chan struct{}
	maxList int64           // bytes of keys and values that a list may have
	account *bounds.Account // of what is read for nobody in particular
	run     context.Context // ends with the store

	compacting sync.Mutex
	compacted  atomic.Int64 // before which versions are forgotten, or are about to be
	// compactions is how many have freed space.
	compactions atomic.Int64
}

var _ logstructured.Log = (*eventLog)(nil)

// last is the revision of the last write on disk.
func (l *eventLog) last() int64 { return l.d.committer.last.Load() }

// CurrentRevision is that of the last write on disk.
func (l *eventLog) CurrentRevision(context.Context) (int64, error) {
	return l.last(), nil
}

// List reads the newest version at a revision (0: now) of a key, or of those from key to end.
func (l *eventLog) List(ctx context.Context, key, end string, limit, revision int64, includeDeletes, keysOnly bool) (int64, kineserver.Events, error) {
	leave, err := l.enterRead(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	before := l.last()
	var rows *sql.Rows
	if unbound := context.WithoutCancel(ctx); revision == 0 {
		rows, err = l.d.ListCurrent(unbound, key, end, limit, includeDeletes, keysOnly)
	} else {
		rows, err = l.d.List(unbound, key, end, limit, revision, includeDeletes, keysOnly)
	}
	rev, events, err := l.read(ctx, rows, err, before, revision, !keysOnly, end != "" && limit > 0)
	if err == nil {
		err = hub.FlowOf(ctx).Taken(events, end, limit)
	}
	if err == nil && revision > rev {
		return rev, nil, kineserver.ErrFutureRev
	}
	return rev, events, err
}

// enterRead waits for a reader that is free, until ctx ends. What is read then is given a context that doesn't end: SQLite's
// driver would start a goroutine for each row of a list to wait for it, which takes longer than to read the row.
func (l *eventLog) enterRead(ctx context.Context) (leave func(), err error) {
	select {
	case l.reading <- struct{}{}:
		return func() { <-l.reading }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read returns the rows and the store's revision they were read at, or at least the one before.
func (l *eventLog) read(
	ctx context.Context, rows *sql.Rows, err error, before, revision int64, val, pages bool,
) (int64, kineserver.Events, error) {
	if err != nil {
		return 0, nil, l.health.see(err)
	}
	limit, leave := l.readLimit(ctx, pages)
	defer leave()
	rev, compacted, events, cut, err := readEvents(ctx, rows, val, limit)
	if err != nil {
		return 0, nil, l.health.see(err)
	}
	noteCut(ctx, cut)
	l.d.committer.reached(rev)
	if len(events) == 0 { // rows bear the revisions that they were read at
		rev, compacted = before, l.compacted.Load()
	}
	if revision > 0 && revision < compacted {
		return rev, nil, kineserver.ErrCompacted
	}
	return rev, events, nil
}

// Count of a past revision returns that revision with it. kine returns the newest, which it then gives a list's first
// page, so that the pages after show another moment than the first.
func (l *eventLog) Count(ctx context.Context, key, end string, revision int64) (int64, int64, error) {
	leave, err := l.enterRead(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	rev, n, err := l.SQLLog.Count(context.WithoutCancel(ctx), key, end, revision)
	l.d.committer.reached(rev)
	if err == nil && revision > 0 {
		rev = revision
	}
	return rev, n, l.health.see(err)
}

// maxAppends is how often a write is tried in a full store: others may take the space that was freed for it.
const maxAppends = 10

func (l *eventLog) Append(ctx context.Context, event *kineserver.Event) (int64, error) {
	seen := l.compactions.Load()
	rev, err := l.SQLLog.Append(ctx, event)
	for tries := 1; tries < maxAppends && errors.Is(err, errNoSpace) && l.forgetHistory(seen); tries++ { // by the limit; a disk's error has another form here
		seen = l.compactions.Load()
		rev, err = l.SQLLog.Append(ctx, event)
	}
	switch {
	case err == nil:
		l.health.written()
	case !errors.Is(err, kineserver.ErrKeyExists):
		err = l.health.see(err)
		noteFailure(ctx, err)
	}
	return rev, err
}

func (l *eventLog) DbSize(context.Context) (int64, error) {
	return l.d.committer.budget.used.Load(), nil
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

// readLimit is that of a list, whose bytes are those of the context's reservation. leave is called when it has been read:
// without a reservation nobody says how long it is held.
func (l *eventLog) readLimit(ctx context.Context, pages bool) (limit readLimit, leave func()) {
	limit = readLimit{most: l.maxList}
	if pages {
		limit.page = pageBytes
	}
	switch reservation := bounds.ReservationOf(ctx); {
	case hub.FlowOf(ctx) != nil:
		limit.page = hub.FlowBytes
		limit.grow = func(int64) error { return nil } // the flow counts
	case reservation != nil:
		limit.page = min(limit.page, reservation.Limit()/8) // so that it also finds a place decoded
		limit.grow = reservation.Grow
	default:
		var held int64
		limit.grow = func(n int64) error {
			held += n
			l.account.Add(bounds.MemoryBytes, n)
			return nil
		}
		return limit, func() { l.account.Give(bounds.MemoryBytes, held) }
	}
	return limit, func() {}
}
