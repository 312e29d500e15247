// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"io"
	"sync"

	"github.com/berth-dev/berth/internal/safego"
)

// impatient is a store whose calls return when their context ends, even if the file system doesn't respond, as one on a network. What was
// begun may still be done later. The reader that get returns is not bound by the context.
type impatient struct{ of store }

func (s impatient) put(ctx context.Context, key string, data io.Reader, size int64) error {
	return withEndError(ctx, func() error { return s.of.put(ctx, key, data, size) })
}

func (s impatient) putNew(ctx context.Context, key string, data io.Reader, size int64) error {
	return withEndError(ctx, func() error { return s.of.putNew(ctx, key, data, size) })
}

func (s impatient) get(ctx context.Context, key string) (io.ReadCloser, error) {
	return withEnd(ctx, func() (io.ReadCloser, error) { return s.of.get(ctx, key) })
}

func (s impatient) list(ctx context.Context, prefix string) ([]object, error) {
	return withEnd(ctx, func() ([]object, error) { return s.of.list(ctx, prefix) })
}

func (s impatient) names(ctx context.Context, prefix string) ([]string, error) {
	return withEnd(ctx, func() ([]string, error) { return s.of.names(ctx, prefix) })
}

func (s impatient) remove(ctx context.Context, key string) error {
	return withEndError(ctx, func() error { return s.of.remove(ctx, key) })
}

func withEndError(ctx context.Context, f func() error) error {
	_, err := withEnd(ctx, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// withEnd returns what f returns, or an error when ctx ends. f may go on then.
func withEnd[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	var abandoned sync.WaitGroup // nobody waits
	safego.Go(&abandoned, "access a bucket", func() {
		value, err := f()
		done <- result{value, err}
	}, func(err error) { done <- result{err: err} })
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// untilEnd reads until its context ends.
type untilEnd struct {
	ctx context.Context //nolint:containedctx // of the call that reads
	r   io.Reader
}

func (u *untilEnd) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}
