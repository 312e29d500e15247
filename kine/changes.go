// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kine keeps how far it has compacted under the key that the API server uses for the same, and the API server's elsewhere.
const (
	compactRevKey = "compact_rev_key"
	compactRevRow = "compact_rev_key_apiserver"
)

// listBytes bounds what one list holds in memory. As many lists as there are readers are read at once.
const listBytes = 256 << 20

// changes is a changesFunc.
func (l *eventLog) changes(ctx context.Context, key, end string, after int64) (changes []*clientv3.Event, more bool, err error) {
	l.idle.touch()
	leave, err := l.enterRead(ctx)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	rows, err := l.d.After(context.WithoutCancel(ctx), key, end, after, feedEvents)
	if err != nil {
		return nil, false, l.health.see(err)
	}
	changes, more, err = readChanges(rows)
	if err != nil {
		return nil, false, l.health.see(err)
	}
	// Now, as a compaction may have run while the rows were read.
	if compacted := l.compacted.Load(); after+1 <= compacted {
		return nil, false, compactedError{compacted}
	}
	return changes, more, nil
}

// readChanges reads rows until there are none, or as many as are to be had at once.
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
		if key == compactRevRow {
			asCompactRevision(&kv)
			asCompactRevision(&prev)
		}
		changes = append(changes, e)
		if size += len(kv.Value) + len(prev.Value); size >= feedBytes || len(changes) == feedEvents {
			return changes, true, rows.Err()
		}
	}
	return changes, false, rows.Err()
}

// readEvents reads the rows of a list, and the store's revision and compacted revision that they were read at.
func readEvents(ctx context.Context, rows *sql.Rows, val bool, most int) (revision, compacted int64, events kineserver.Events, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	var rev, old sql.NullInt64
	for size := 0; rows.Next(); {
		if err := ctx.Err(); err != nil {
			return 0, 0, nil, err
		}
		e := &kineserver.Event{KV: &kineserver.KeyValue{}}
		into := []any{&rev, &old, &e.KV.ModRevision, &e.KV.Key, &e.Create, &e.Delete, &e.KV.CreateRevision, new(int64), &e.KV.Lease}
		if val {
			into = append(into, &e.KV.Value)
		}
		if err := rows.Scan(into...); err != nil {
			return 0, 0, nil, err
		}
		if e.Create {
			e.KV.CreateRevision = e.KV.ModRevision
		}
		if size += len(e.KV.Key) + len(e.KV.Value); size > most {
			return 0, 0, nil, errListTooLarge
		}
		events = append(events, e)
	}
	return rev.Int64, old.Int64, events, rows.Err()
}

// asCompactRevision makes the row that stands in for the API server's own look like that.
func asCompactRevision(kv *mvccpb.KeyValue) {
	kv.Key = []byte(compactRevKey)
	kv.Version, kv.Value = kineserver.DecodeVersion(kv.Value)
}
