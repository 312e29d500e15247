// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import "sync"

// latch counts those inside, and can be closed to those who come. A WaitGroup
// alone would not do: it must not grow while it is waited for.
type latch struct {
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{} // closed when closed and nobody is inside
}

func newLatch() *latch { return &latch{empty: make(chan struct{})} }

// enter reports whether the latch is open. If so, leave must follow.
func (l *latch) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.inside++
	return true
}

func (l *latch) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
	if l.closed && l.inside == 0 {
		close(l.empty)
	}
}

// close lets nobody in any more. The channel it returns is closed when the last
// has left.
func (l *latch) close() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		if l.inside == 0 {
			close(l.empty)
		}
	}
	return l.empty
}
