// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import "sync"

// Latch counts those inside, and can be closed to those who come. A WaitGroup
// alone would not do: it must not grow while it is waited for.
type Latch struct {
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{} // closed when closed and nobody is inside
}

// NewLatch returns a latch that is open.
func NewLatch() *Latch { return &Latch{empty: make(chan struct{})} }

// Enter reports whether the latch is open. If so, leave must follow.
func (l *Latch) Enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.inside++
	return true
}

// Leave must follow each Enter that reported true.
func (l *Latch) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
	if l.closed && l.inside == 0 {
		close(l.empty)
	}
}

// Close lets nobody in any more. The channel it returns is closed when the last
// has left.
func (l *Latch) Close() <-chan struct{} {
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
