// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"sync"

	"github.com/k3s-io/kine/pkg/logstructured"
	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/kine/hub"
)

// backend is kine's backend behind a gate. It counts calls, so that Close can wait for them, and rejects calls when the
// store is closing or damaged. Watches don't pass it; they use the hub.
type backend struct {
	*logstructured.LogStructured
	health *health
	hub    *hub.Hub
	expiry *expiry
	idle   *idler
	fence  *fence // nil for a file

	mu     sync.Mutex
	closed bool
	// closing is canceled when the store is being closed; end cancels it.
	closing context.Context
	end     context.CancelFunc
	calls   sync.WaitGroup
}

var _ kineserver.Backend = (*backend)(nil)

// enter admits a call. After each enter without an error, b.calls.Done must be called.
func (b *backend) enter() error {
	err := b.enterQuietly()
	if err == nil {
		b.idle.touch()
		b.fence.touch()
	}
	return err
}

// enterQuietly is enter for calls that don't count as use of the store.
func (b *backend) enterQuietly() error {
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

// close rejects new calls, and waits for the current ones.
func (b *backend) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.end()
	b.idle.stop()
	b.fence.stop()
	b.expiry.stop()
	b.hub.Close()
	b.calls.Wait()
}

func (b *backend) Get(ctx context.Context, key string, revision int64, keysOnly bool) (int64, *kineserver.KeyValue, error) {
	return hub.ReadWhenReady(ctx, b.closing.Done(), func() (int64, *kineserver.KeyValue, error) {
		if err := b.enter(); err != nil {
			return 0, nil, err
		}
		defer b.calls.Done()
		return b.LogStructured.Get(ctx, key, revision, keysOnly)
	})
}

func (b *backend) List(ctx context.Context, key, end string, limit, revision int64, keysOnly bool) (int64, []*kineserver.KeyValue, error) {
	return hub.ReadWhenReady(ctx, b.closing.Done(), func() (int64, []*kineserver.KeyValue, error) {
		if err := b.enter(); err != nil {
			return 0, nil, err
		}
		defer b.calls.Done()
		return b.LogStructured.List(ctx, key, end, limit, revision, keysOnly)
	})
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
	rev, err := b.LogStructured.Create(ctx, key, value, lease)
	if err == nil && lease > 0 {
		b.expiry.set(lease)
	}
	return rev, err
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
	if ok && lease > 0 {
		b.expiry.set(lease)
	}
	return rev, kv, ok, err
}

// Delete behaves like etcd for a key that does not exist: with a revision, it reports that nothing was deleted. If another
// deletion comes first, kine returns what is left of the key, as if it were an object that is empty.
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
	if err == nil && !ok && kv != nil {
		rev, kv, err = b.LogStructured.Get(ctx, key, 0, false)
	}
	if kv == nil && revision != 0 {
		ok = false
	}
	return rev, kv, ok, err
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
