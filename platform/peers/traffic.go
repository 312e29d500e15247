// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"sync"
	"time"
)

const (
	// maxHeld is how many requests of a space wait at most while it is moved. Others are told to try again.
	maxHeld = 1024
	// heldFor is how long they wait at most.
	heldFor = 15 * time.Second
)

// Traffic are the requests to the spaces of this shard. While a space is moved, its requests wait. The zero value is ready to use. It is
// safe for concurrent use.
type Traffic struct {
	mu sync.Mutex
	of map[string]*traffic
}

// traffic are the requests to a space.
type traffic struct {
	current int           // requests that don't last
	ended   chan struct{} // while somebody waits for their end: closed at that
	held    int
	moving  chan struct{} // while the space is moved: closed at the end
}

// Enter notes a request to a space. If the space is being moved, it returns a function that waits for the end of the move instead, and
// reports whether the request may be routed again.
func (t *Traffic) Enter(space string, lasts bool) (wait func(context.Context) bool, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.space(space)
	if s.moving != nil {
		return func(ctx context.Context) bool { return t.wait(ctx, space, s) }, nil
	}
	if lasts {
		t.forget(space, s)
		return nil, func() {}
	}
	s.current++
	return nil, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		s.current--
		if s.current == 0 && s.ended != nil {
			close(s.ended)
			s.ended = nil
		}
		t.forget(space, s)
	}
}

func (t *Traffic) wait(ctx context.Context, space string, s *traffic) bool {
	t.mu.Lock()
	moving := s.moving
	if moving == nil {
		t.mu.Unlock()
		return true
	}
	if s.held >= maxHeld {
		t.mu.Unlock()
		return false
	}
	s.held++
	t.mu.Unlock()
	timer := time.NewTimer(heldFor)
	defer timer.Stop()
	ended := false
	select {
	case <-moving:
		ended = true
	case <-ctx.Done():
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.held--
	t.forget(space, s)
	return ended
}

// Hold has requests to a space wait until release is called. It returns when those that came before have ended, except for those that
// last, or when ctx ends.
func (t *Traffic) Hold(ctx context.Context, space string) (release func()) {
	t.mu.Lock()
	s := t.space(space)
	s.moving = make(chan struct{})
	ended := make(chan struct{})
	if s.current == 0 {
		close(ended)
	} else {
		s.ended = ended
	}
	t.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		close(s.moving)
		s.moving = nil
		t.forget(space, s)
	}
}

func (t *Traffic) space(name string) *traffic {
	s := t.of[name]
	if s == nil {
		if t.of == nil {
			t.of = map[string]*traffic{}
		}
		s = &traffic{}
		t.of[name] = s
	}
	return s
}

// forget forgets a space without requests.
func (t *Traffic) forget(name string, s *traffic) {
	if s.current == 0 && s.held == 0 && s.moving == nil && t.of[name] == s {
		delete(t.of, name)
	}
}
