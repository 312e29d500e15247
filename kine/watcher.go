// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/kine/hub"
	"github.com/berth-dev/berth/kine/sqlite"
)

// watcher implements the watches of an etcd client with the hub. It differs from etcd only in ways that no client of a
// space's store depends on: a response always contains all events of its revisions, even if it could be fragmented;
// events always contain previous values; and progress is reported to all watches with WithProgressNotify, not only to
// those of one stream.
type watcher struct{ backend *backend }

var _ clientv3.Watcher = watcher{}

// Watch returns at once. The channel is closed when ctx ends, when the store is closed or damaged, or after a response
// that the requested changes have been compacted.
func (w watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	// etcd's client does not export the options of a watch, so they are read from an operation.
	op := clientv3.OpGet(key, opts...)
	set := reflect.ValueOf(op)
	watch := &hub.Watch{
		Key: string(op.KeyBytes()), End: string(op.RangeBytes()), From: op.Rev(),
		Progress:  set.FieldByName("progressNotify").Bool(),
		NoPuts:    set.FieldByName("filterPut").Bool(),
		NoDeletes: set.FieldByName("filterDelete").Bool(),
		Flow:      hub.FlowOf(ctx),
	}
	if watch.Key == sqlite.CompactRevKey {
		watch.Key = sqlite.CompactRevRow
	}
	if w.backend.enter() != nil {
		over := make(chan clientv3.WatchResponse)
		close(over)
		return over
	}
	defer w.backend.calls.Done()
	w.backend.hub.Add(ctx, watch, set.FieldByName("createdNotify").Bool())
	return watch.Out
}

// RequestProgress returns at once. The response follows when all earlier writes have been delivered.
func (w watcher) RequestProgress(context.Context) error {
	if err := w.backend.enter(); err != nil {
		return err
	}
	defer w.backend.calls.Done()
	w.backend.hub.AskProgress()
	return nil
}

// Close does nothing: the watches end with the store.
func (w watcher) Close() error { return nil }
