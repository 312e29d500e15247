// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/internal/yield"
	"github.com/berth-dev/berth/kine/hub"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// listBytes is the maximum size of a list in memory if no reservation limits it.
	listBytes = 256 << 20
	// pageBytes is the size at which a list in pages is cut. The list with which a watch begins is cut at FlowBytes. A
	// page has at least one row.
	pageBytes = 8 << 20
)

// readLimit limits the size of a list.
type readLimit struct {
	most int64 // bytes beyond which the list fails
	page int64 // bytes beyond which the list is cut; 0 means never
	grow func(n int64) error
}

// changes implements changesFunc. While the database is unreachable, it waits, so that watches don't end.
func (l *eventLog) changes(ctx context.Context, key, end string, after int64) (changes []*clientv3.Event, more bool, err error) {
	for {
		changes, more, err = l.readLog(ctx, key, end, after)
		if !errors.Is(err, errUnreachable) {
			return changes, more, err
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return nil, false, err
		case <-l.closing.Done():
			return nil, false, err
		case <-l.health.bad.Done():
			return nil, false, err
		}
	}
}

// readLog reads the changes after a revision.
func (l *eventLog) readLog(ctx context.Context, key, end string, after int64) (changes []*clientv3.Event, more bool, err error) {
	l.idle.touch()
	leave, err := l.enterRead(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	readCtx, cancel := readContext(ctx, l.db)
	defer cancel()
	rows, err := l.d.After(readCtx, key, end, after, hub.FeedEvents)
	if err != nil {
		return nil, false, l.health.see(err)
	}
	changes, more, err = readChanges(rows)
	if err != nil {
		return nil, false, l.health.see(err)
	}
	// This must be checked after reading, because a compaction may have run in the meantime.
	if compacted := l.compacted.Load(); after+1 <= compacted {
		return nil, false, hub.CompactedError{Revision: compacted}
	}
	return changes, more, nil
}

// readChanges reads rows until there are no more, or as many as one call returns.
func readChanges(rows *sql.Rows) (changes []*clientv3.Event, more bool, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := 0; rows.Next(); {
		var revision, compacted sql.NullInt64
		var created, deleted bool
		var key string
		var kv, prev mvccpb.KeyValue
		if err := rows.Scan(&revision, &compacted, &kv.ModRevision, &key, &created, &deleted,
			&kv.CreateRevision, &prev.ModRevision, &kv.Lease, &kv.Value, &prev.Value); err != nil {
			return nil, false, err
		}
		e := &clientv3.Event{Type: clientv3.EventTypePut, Kv: &kv}
		kv.Key = []byte(key)
		if deleted {
			e.Type = clientv3.EventTypeDelete
		}
		if created {
			kv.CreateRevision = kv.ModRevision
		} else {
			prev.Key, prev.CreateRevision, prev.Lease = kv.Key, kv.CreateRevision, kv.Lease
			e.PrevKv = &prev
		}
		if key == sqlite.CompactRevRow {
			asCompactRevision(&kv)
			asCompactRevision(&prev)
		}
		changes = append(changes, e)
		if size += len(kv.Value) + len(prev.Value); size >= hub.FeedBytes || len(changes) == hub.FeedEvents {
			return changes, true, rows.Err()
		}
	}
	return changes, false, rows.Err()
}

// readEvents reads the rows of a list, and the store's revision and compacted revision at that time. cut means that
// there are more rows.
func readEvents(ctx context.Context, rows *sql.Rows, val bool, limit readLimit) (
	revision, compacted int64, events kineserver.Events, cut bool, err error,
) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	fail := func(err error) (int64, int64, kineserver.Events, bool, error) { return 0, 0, nil, false, err }
	var rev, old sql.NullInt64
	var point yield.Point
	for size := int64(0); rows.Next(); {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		point.Pass(nil)
		if limit.page > 0 && size >= limit.page {
			cut = true
			break
		}
		e := &kineserver.Event{KV: &kineserver.KeyValue{}}
		into := []any{&rev, &old, &e.KV.ModRevision, &e.KV.Key, &e.Create, &e.Delete, &e.KV.CreateRevision, new(int64), &e.KV.Lease}
		if val {
			into = append(into, &e.KV.Value)
		}
		if err := rows.Scan(into...); err != nil {
			return fail(err)
		}
		if e.Create {
			e.KV.CreateRevision = e.KV.ModRevision
		}
		n := int64(len(e.KV.Key) + len(e.KV.Value))
		if size += n; size > limit.most {
			return fail(errListTooLarge)
		}
		if err := limit.grow(n); err != nil {
			if limit.page > 0 && len(events) > 0 {
				cut = true
				break
			}
			return fail(err)
		}
		events = append(events, e)
	}
	return rev.Int64, old.Int64, events, cut, rows.Err()
}

// asCompactRevision gives the row that replaces the API server's own the form that the API server expects.
func asCompactRevision(kv *mvccpb.KeyValue) {
	kv.Key = []byte(sqlite.CompactRevKey)
	kv.Version, kv.Value = kineserver.DecodeVersion(kv.Value)
}

type cutKey struct{}

// withCut returns a context for a list, and a variable that is set if the list was cut. kine's backend has no such
// result.
func withCut(ctx context.Context) (context.Context, *bool) {
	cut := new(bool)
	return context.WithValue(ctx, cutKey{}, cut), cut
}

func noteCut(ctx context.Context, cut bool) {
	if noted, ok := ctx.Value(cutKey{}).(*bool); ok && cut {
		*noted = true
	}
}
