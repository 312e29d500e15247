// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"io"
	"sync"
)

// slots bound how many streams a space has open, and end them with it.
type slots struct {
	life context.Context
	end  context.CancelFunc

	mu    sync.Mutex
	taken int
	most  int
}

func newSlots(most int) *slots {
	s := &slots{most: most}
	s.life, s.end = context.WithCancel(context.Background())
	return s
}

// take returns the context of a stream, which ends with ctx, with release, which
// must be called, or when all do.
func (s *slots) take(ctx context.Context) (stream context.Context, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, nil, stopping()
	}
	if s.taken >= s.most {
		return nil, nil, tooMany(s.most)
	}
	s.taken++
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.life, cancel)
	return ctx, sync.OnceFunc(func() {
		unhook()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.taken--
	}), nil
}

func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
}

// held is a body that gives its slot back when it is closed. A connection is
// closed when ctx, its slot's, ends; other bodies end with it by themselves.
func held(ctx context.Context, body io.ReadCloser, release func()) io.ReadCloser {
	b := heldBody{body, release}
	w, ok := body.(io.Writer)
	if !ok {
		return b
	}
	unhook := context.AfterFunc(ctx, func() { _ = body.Close() })
	b.release = func() {
		unhook()
		release()
	}
	return heldConn{b, w, ctx.Done()}
}

type heldBody struct {
	io.ReadCloser
	release func()
}

func (b heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

type heldConn struct {
	heldBody
	io.Writer
	done <-chan struct{}
}

// Done is closed once the connection is, or is to be.
func (c heldConn) Done() <-chan struct{} { return c.done }
