// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"sync"
	"time"
)

const (
	// settle is how long a change waits for the next ones, so that several changes at once cost one reconcile.
	settle = 500 * time.Millisecond
	// restFactor is how many times the duration of the last reconcile of its space a change waits.
	restFactor = 4
)

// pace keeps a space that changes without end from occupying the controller: the longer a reconcile of a space takes, the longer the
// next change of that space waits.
type pace struct {
	mu   sync.Mutex
	last map[string]time.Duration // the duration of the last reconcile, by the name of the space
}

func newPace() *pace { return &pace{last: map[string]time.Duration{}} }

// delay returns how long a change of a space waits.
func (p *pace) delay(space string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(settle, restFactor*p.last[space])
}

// record notes how long a reconcile of a space took.
func (p *pace) record(space string, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[space] = took
}

// forget drops what is known about a space that no longer exists.
func (p *pace) forget(space string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, space)
}
