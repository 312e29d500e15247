// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/hub"
)

// eventLog is kine's log of changes with two corrections. kine's own treats an interrupted read as complete. It also
// reads the revision of an empty list after the list, so that neither the list nor the watch that follows has a key
// that was created in between.
type eventLog struct {
	*sqllog.SQLLog
	d      *dialect
	db     database
	health *health
	idle   *idler
	// reading has an element for each current reader.
	reading chan struct{}
	maxList int64           // maximum bytes of keys and values in a list
	account *bounds.Account // counts what is read outside of requests
	run     context.Context // ends with the store
	closing context.Context // ends when the store begins to close

	compacting sync.Mutex
	compacted  atomic.Int64 // before it, versions are removed or about to be
	// compactions counts the compactions that have freed space.
	compactions atomic.Int64
}

var _ logstructured.Log = (*eventLog)(nil)

// last returns the revision of the last write on disk.
func (l *eventLog) last() int64 { return l.d.committer.last.Load() }

// CurrentRevision returns the revision of the last write on disk.
func (l *eventLog) CurrentRevision(context.Context) (int64, error) {
	return l.last(), nil
}

// List reads the newest version, at a revision (0 means now), of a key, or of the keys from key to end.
func (l *eventLog) List(ctx context.Context, key, end string, limit, revision int64, includeDeletes, keysOnly bool) (int64, kineserver.Events, error) {
	leave, err := l.enterList(ctx, hub.FlowOf(ctx) != nil && !hub.AsksRevision(end, limit))
	if err != nil {
		return 0, nil, err
	}
	defer leave()
	if end != "" {
		key = l.d.TranslateStartKey(key)
	}
	before := l.last()
	var rows *sql.Rows
	readCtx, cancel := readContext(ctx, l.db)
	defer cancel()
	if revision == 0 {
		rows, err = l.d.ListCurrent(readCtx, key, end, limit, includeDeletes, keysOnly)
	} else {
		rows, err = l.d.List(readCtx, key, end, limit, revision, includeDeletes, keysOnly)
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

// enterList waits for a free reader of a list, and for a turn if the list needs one, until ctx ends. The turn of a watch's request is over when its response begins. So what the
// watch begins with takes turns of its own; many watches at once would otherwise be in front of all other tenants.
func (l *eventLog) enterList(ctx context.Context, byTurns bool) (leave func(), err error) {
	release := func() {}
	if byTurns {
		if release, err = bounds.WorkOf(ctx).Turn(ctx); err != nil {
			return nil, err
		}
	}
	done, err := l.enterRead(ctx)
	if err != nil {
		release()
		return nil, err
	}
	return func() {
		done()
		release()
	}, nil
}

// enterRead waits for a free reader, until ctx ends.
func (l *eventLog) enterRead(ctx context.Context) (leave func(), err error) {
	if l.d.committer.link.lost.Load() {
		return nil, errUnreachable
	}
	if cache, is := l.db.(cachedDatabase); is {
		if err := cache.Fresh(ctx); err != nil {
			return nil, l.failed(ctx, err)
		}
		l.health.reached()
	}
	select {
	case l.reading <- struct{}{}:
		return func() { <-l.reading }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read returns the rows and the store's revision at which they were read, or at least an earlier one.
func (l *eventLog) read(
	ctx context.Context, rows *sql.Rows, err error, before, revision int64, val, pages bool,
) (int64, kineserver.Events, error) {
	if err != nil {
		return 0, nil, l.failed(ctx, err)
	}
	limit, leave := l.readLimit(ctx, pages)
	defer leave()
	rev, compacted, events, cut, err := readEvents(ctx, rows, val, limit)
	if err != nil {
		return 0, nil, l.failed(ctx, err)
	}
	noteCut(ctx, cut)
	if err := l.saw(rev); err != nil {
		return 0, nil, err
	}
	if len(events) == 0 { // otherwise, the rows contain the revision at which they were read
		rev, compacted = before, l.compacted.Load()
	}
	if revision > 0 && revision < compacted {
		return rev, nil, kineserver.ErrCompacted
	}
	return rev, events, nil
}

// Count for a past revision returns that revision. kine returns the newest, which becomes the revision of a list's
// first page, so that the following pages would be from another revision than the first.
func (l *eventLog) Count(ctx context.Context, key, end string, revision int64) (int64, int64, error) {
	leave, err := l.enterRead(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer leave()
	readCtx, cancel := readContext(ctx, l.db)
	defer cancel()
	rev, n, err := l.SQLLog.Count(readCtx, key, end, revision)
	if err == nil {
		err = l.saw(rev)
	}
	if err == nil && revision > 0 {
		rev = revision
	}
	return rev, n, l.failed(ctx, err)
}

// failed returns the error of a read for the client. That its context has ended is not an error of the database.
func (l *eventLog) failed(ctx context.Context, err error) error {
	if ended := ctx.Err(); err != nil && ended != nil && l.db.Fault(err) != dbms.Fenced {
		return ended
	}
	return l.health.see(err)
}

// saw records a revision that a read has found in the database. If this store can't have written it, another process has taken
// the database over.
func (l *eventLog) saw(rev int64) error {
	if rev > l.d.committer.tried.Load() {
		return l.health.see(fmt.Errorf("%w: it has written revision %d", dbms.ErrFenced, rev))
	}
	l.d.committer.reached(rev)
	l.health.reached()
	return nil
}

// maxAppends is how often a write is tried in a full store. Other writes may use the space that was freed for it.
const maxAppends = 10

func (l *eventLog) Append(ctx context.Context, event *kineserver.Event) (int64, error) {
	seen := l.compactions.Load()
	rev, err := l.SQLLog.Append(ctx, event)
	for tries := 1; tries < maxAppends && errors.Is(err, errNoSpace) && l.forgetHistory(seen); tries++ { // errors of a full disk have another type here
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

// failure passes an append's error through kine's backend. The backend treats any error as a lost race and responds
// "conflict", so that clients would retry forever on a full disk.
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

// readLimit returns the limit of a list. Its bytes count towards the reservation in the context. Without one, nobody
// knows how long the list is in memory, so leave must be called when it has been read.
func (l *eventLog) readLimit(ctx context.Context, pages bool) (limit readLimit, leave func()) {
	limit = readLimit{most: l.maxList}
	if pages {
		limit.page = pageBytes
	}
	switch reservation := bounds.ReservationOf(ctx); {
	case hub.FlowOf(ctx) != nil:
		limit.page = hub.FlowBytes
		limit.grow = func(int64) error { return nil } // the flow counts them
	case reservation != nil:
		limit.page = min(limit.page, reservation.Limit()/8) // so that the decoded list also fits
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
