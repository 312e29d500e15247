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

// watcher is an etcd client's watches, fed by the hub. It differs from etcd's in what no client of a space's store needs:
// a response always holds all events of its revisions, whether or not it may be fragmented; values from before are told
// even if nobody asked; progress is told to every watch that was made with WithProgressNotify, not to those of one stream.
type watcher struct{ backend *backend }

var _ clientv3.Watcher = watcher{}

// Watch returns at once. The channel is closed when ctx ends, the store closes or serves nothing any more, or after a
// response that says that the changes asked for are compacted.
func (w watcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	// etcd's client shows a watch's options to its own requests only.
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

// RequestProgress returns at once; the answer comes when all that was written before the request has been told.
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
