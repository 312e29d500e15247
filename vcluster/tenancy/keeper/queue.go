// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"sync"
	"time"
)

const (
	// firstPause is how long a namespace is left alone after its objects were looked at; it doubles each time, up to lastPause. After
	// calm without a change, it is firstPause again.
	firstPause, lastPause = 50 * time.Millisecond, 30 * time.Second
	calm                  = time.Minute
)

// queue are the namespaces whose objects are to be looked at. Each is looked at rarely if it changes all the time.
type queue struct {
	signal chan struct{}

	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	waiting bool
	due     time.Time // before which it is not looked at
	pause   time.Duration
	last    time.Time
}

func newQueue() queue { return queue{signal: make(chan struct{}, 1), entries: map[string]*entry{}} }

// add has a namespace looked at.
func (q *queue) add(namespaces ...string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, name := range namespaces {
		e := q.entries[name]
		if e == nil {
			e = &entry{}
			q.entries[name] = e
		}
		e.waiting = true
	}
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// forget drops a namespace that is gone.
func (q *queue) forget(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.entries, name)
}

// reset drops all namespaces.
func (q *queue) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.entries = map[string]*entry{}
}

// next returns a namespace to look at now; otherwise when there will be one, zero if none waits.
func (q *queue) next(now time.Time) (name string, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, e := range q.entries {
		if !e.waiting {
			continue
		}
		if !now.Before(e.due) {
			e.waiting = false
			return n, time.Time{}
		}
		if due.IsZero() || e.due.Before(due) {
			due = e.due
		}
	}
	return "", due
}

// done notes that a namespace was looked at. One that failed is looked at again.
func (q *queue) done(name string, failed bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[name]
	if e == nil {
		return
	}
	if e.pause = min(2*e.pause, lastPause); e.pause == 0 || now.Sub(e.last) > calm {
		e.pause = firstPause
	}
	e.last, e.due = now, now.Add(e.pause)
	e.waiting = e.waiting || failed
}
