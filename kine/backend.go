// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"sync"

	"github.com/k3s-io/kine/pkg/logstructured"
	kineserver "github.com/k3s-io/kine/pkg/server"
)

// backend is kine's backend behind a gate: calls are counted, so that Close can wait for them, and none is let in once
// the store is closing or out of order.
type backend struct {
	*logstructured.LogStructured
	health *health
	log    *eventLog
	hub    *hub

	mu     sync.Mutex
	closed bool
	calls  sync.WaitGroup
}

var _ kineserver.Backend = (*backend)(nil)

// enter lets a call in. Every enter without an error is followed by b.calls.Done.
func (b *backend) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosed
	}
	if _, shown := b.health.check(); shown != nil {
		return shown
	}
	b.calls.Add(1)
	return nil
}

// close lets nothing more in, and waits for what is in.
func (b *backend) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.hub.close()
	b.calls.Wait()
}

func (b *backend) Get(ctx context.Context, key string, revision int64, keysOnly bool) (int64, *kineserver.KeyValue, error) {
	if err := b.enter(); err != nil {
		return 0, nil, err
	}
	defer b.calls.Done()
	return b.LogStructured.Get(ctx, key, revision, keysOnly)
}

func (b *backend) List(ctx context.Context, key, end string, limit, revision int64, keysOnly bool) (int64, []*kineserver.KeyValue, error) {
	if err := b.enter(); err != nil {
		return 0, nil, err
	}
	defer b.calls.Done()
	return b.LogStructured.List(ctx, key, end, limit, revision, keysOnly)
}

func (b *backend) Count(ctx context.Context, key, end string, revision int64) (int64, int64, error) {
	if err := b.enter(); err != nil {
		return 0, 0, err
	}
	defer b.calls.Done()
	return b.LogStructured.Count(ctx, key, end, revision)
}

func (b *backend) Create(ctx context.Context, key string, value []byte, lease int64) (int64, error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.calls.Done()
	return b.LogStructured.Create(ctx, key, value, lease)
}

func (b *backend) Update(ctx context.Context, key string, value []byte, revision, lease int64) (int64, *kineserver.KeyValue, bool, error) {
	if err := b.enter(); err != nil {
		return 0, nil, false, err
	}
	defer b.calls.Done()
	ctx, failed := withFailure(ctx)
	rev, kv, ok, err := b.LogStructured.Update(ctx, key, value, revision, lease)
	if failed.err != nil {
		return 0, nil, false, failed.err
	}
	return rev, kv, ok, err
}

// Delete answers as etcd for a key that isn't there: not done, if a version of it was asked for.
func (b *backend) Delete(ctx context.Context, key string, revision int64) (int64, *kineserver.KeyValue, bool, error) {
	if err := b.enter(); err != nil {
		return 0, nil, false, err
	}
	defer b.calls.Done()
	ctx, failed := withFailure(ctx)
	rev, kv, ok, err := b.LogStructured.Delete(ctx, key, revision)
	if failed.err != nil {
		return 0, nil, false, failed.err
	}
	if kv == nil && revision != 0 {
		ok = false
	}
	return rev, kv, ok, err
}

// Watch from revision 0 is one from now on, as in etcd; kine's begins with all that ever was.
func (b *backend) Watch(ctx context.Context, key, end string, revision int64) kineserver.WatchResult {
	if err := b.enter(); err != nil {
		return failedWatch(err)
	}
	defer b.calls.Done()
	if revision == 0 {
		revision = b.hub.last() + 1
	}
	w, since := b.hub.subscribe(ctx, key, end, revision)
	var past kineserver.Events
	if revision <= since {
		var compacted int64
		var err error
		if past, compacted, err = b.past(ctx, key, end, revision, since); err != nil {
			b.hub.drop(w)
			result := failedWatch(err)
			result.CurrentRevision, result.CompactRevision = since, compacted
			return result
		}
	}
	b.hub.start(w, past)
	return kineserver.WatchResult{Events: w.out, Errorc: make(chan error)}
}

// past returns the changes from one revision to another, or the compacted revision if some of them may be forgotten.
func (b *backend) past(ctx context.Context, key, end string, from, to int64) (past kineserver.Events, compacted int64, err error) {
	_, past, err = b.log.After(ctx, key, end, from-1, 0)
	if err != nil && !errors.Is(err, kineserver.ErrCompacted) {
		return nil, 0, err
	}
	compacted, compactedErr := b.log.CompactRevision(ctx)
	switch {
	case compactedErr != nil:
		return nil, 0, compactedErr
	case from <= compacted:
		return nil, compacted, kineserver.ErrCompacted
	}
	for len(past) > 0 && past[len(past)-1].KV.ModRevision > to {
		past = past[:len(past)-1]
	}
	return past, 0, nil
}

// failedWatch is a watch that was over before it began.
func failedWatch(err error) kineserver.WatchResult {
	events, errc := make(chan []*kineserver.Event), make(chan error, 1)
	close(events)
	errc <- err
	return kineserver.WatchResult{Events: events, Errorc: errc}
}

func (b *backend) DbSize(ctx context.Context) (int64, error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.calls.Done()
	return b.LogStructured.DbSize(ctx)
}

func (b *backend) CurrentRevision(ctx context.Context) (int64, error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.calls.Done()
	return b.LogStructured.CurrentRevision(ctx)
}

func (b *backend) Compact(ctx context.Context, revision int64) (int64, error) {
	if err := b.enter(); err != nil {
		return 0, err
	}
	defer b.calls.Done()
	return b.LogStructured.Compact(ctx, revision)
}

// WaitForSyncTo returns when the watches have been handed every change up to a revision.
func (b *backend) WaitForSyncTo(revision int64) {
	if b.enter() != nil {
		return
	}
	defer b.calls.Done()
	b.hub.wait(revision)
}
