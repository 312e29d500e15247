// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// Queue is the work of one space. Several keys are processed at once, but each key only once at a time. An idle queue
// has no goroutine, there are timers only for keys that are due later, and its size is that of the pending work.
//
// New objects have priority over changed ones: a burst of pods is created on the host before their statuses are
// processed.
//
// Spaces don't share a pool of workers. Otherwise, a tenant whose own API hangs, because of webhooks that never
// respond, would block the workers of others.
type Queue struct {
	do    func(context.Context, Key) next
	limit int // of keys that are processed at once

	mu      sync.Mutex
	ctx     context.Context // for all work; nil until open is called
	closed  bool
	first   []Key          // waiting keys that are new to the host, in order of arrival
	rest    []Key          // all other waiting keys
	turn    int            // counts takes, so that first does not starve rest
	marks   map[Key]mark   // of all keys that wait or are being processed
	later   map[Key]*timer // keys that are due later
	working int
	workers sync.WaitGroup
}

// restTurn is the fraction of takes, one in so many, that are for other keys while new ones wait.
const restTurn = 8

type mark int

const (
	waits  mark = iota + 1
	worked      // is being processed
	again       // is being processed, and has been added again
)

// next says when a key is due again: never if after is 0.
type next struct {
	after time.Duration
	// idle means that it can wait while the space sleeps.
	idle bool
	// wake is when it must be done at the latest, although idle is set; 0 means never.
	wake time.Duration
	// failed means that it may succeed as soon as other writes to the host do.
	failed bool
	// refused means that the host, or a rule of the space, rejected it.
	refused bool
}

type timer struct {
	*time.Timer
	at                    time.Time // when it is due, even if the space sleeps, unless idle is set
	idle, failed, refused bool
}

func newQueue(limit int, do func(context.Context, Key) next) *Queue {
	return &Queue{do: do, limit: limit, marks: map[Key]mark{}, later: map[Key]*timer{}}
}

// open starts to process the keys that were added, with ctx.
func (q *Queue) open(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.ctx = ctx
	for range min(q.limit, len(q.first)+len(q.rest)) {
		q.hire()
	}
}

// close drops waiting keys, and returns when none is being processed.
func (q *Queue) close() {
	q.mu.Lock()
	q.closed = true
	q.first, q.rest = nil, nil
	for key, t := range q.later {
		t.Stop()
		delete(q.later, key)
	}
	q.mu.Unlock()
	q.workers.Wait()
}

// Add enqueues a key. If it is being processed, it is processed once more.
func (q *Queue) Add(key Key) { q.put(key, false) }

// addFirst is Add for new objects.
func (q *Queue) addFirst(key Key) { q.put(key, true) }

func (q *Queue) put(key Key, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	switch q.marks[key] {
	case waits, again:
	case worked:
		q.marks[key] = again
	default:
		q.wait(key, first)
		if q.ctx != nil && q.working < q.limit {
			q.hire()
		}
	}
}

// wait queues a key. q.mu must be held.
func (q *Queue) wait(key Key, first bool) {
	q.marks[key] = waits
	if first {
		q.first = append(q.first, key)
	} else {
		q.rest = append(q.rest, key)
	}
}

// hire starts a worker, which ends when no key waits. q.mu must be held.
func (q *Queue) hire() {
	q.working++
	safego.Go(&q.workers, "sync objects", func() {
		for key, ok := q.take(); ok; key, ok = q.take() {
			q.done(key, q.do(q.ctx, key))
		}
	}, nil)
}

func (q *Queue) take() (key Key, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.first
	if q.turn++; len(q.first) == 0 || q.turn%restTurn == 0 && len(q.rest) > 0 {
		from = &q.rest
	}
	if len(*from) == 0 {
		q.working--
		if len(q.marks) == 0 { // release the memory of a burst
			q.first, q.rest, q.marks = nil, nil, map[Key]mark{}
		}
		return key, false
	}
	key, *from = (*from)[0], (*from)[1:]
	q.marks[key] = worked
	// Only the result of this run counts.
	if t := q.later[key]; t != nil {
		t.Stop()
		delete(q.later, key)
	}
	return key, true
}

func (q *Queue) done(key Key, n next) {
	q.mu.Lock()
	defer q.mu.Unlock()
	repeat := q.marks[key] == again
	delete(q.marks, key)
	switch {
	case q.closed:
	case repeat:
		q.wait(key, false)
	case n.after > 0:
		q.setTimer(key, n)
	}
}

// hasten makes failed keys due now.
func (q *Queue) hasten() {
	q.mu.Lock()
	var failed []Key
	for key, t := range q.later {
		if t.failed {
			failed = append(failed, key)
			t.Stop()
			delete(q.later, key)
		}
	}
	q.mu.Unlock()
	for _, key := range failed {
		q.Add(key)
	}
}

// setTimer sets a key's timer. q.mu must be held.
func (q *Queue) setTimer(key Key, n next) {
	if t := q.later[key]; t != nil {
		t.Stop()
	}
	t := &timer{at: time.Now().Add(n.after), idle: n.idle, failed: n.failed, refused: n.refused}
	if n.wake > 0 {
		t.at, t.idle = time.Now().Add(n.wake), false
	}
	q.later[key] = t
	t.Timer = safego.AfterFunc(n.after, "sync an object again", func() { q.due(key, t) })
}

// putLater makes a key due after a while, unless it is processed before that. Only the last call counts.
func (q *Queue) putLater(key Key, n next) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.setTimer(key, n)
	}
}

// due adds the key of an expired timer, unless the timer was stopped too late.
func (q *Queue) due(key Key, t *timer) {
	q.mu.Lock()
	mine := q.later[key] == t
	if mine {
		delete(q.later, key)
	}
	q.mu.Unlock()
	if mine {
		q.Add(key)
	}
}

// empty reports whether no key waits or is being processed.
func (q *Queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ctx != nil && len(q.marks) == 0
}

// NewWaits reports whether a new object waits.
func (q *Queue) NewWaits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.first) > 0
}

// Repeats reports whether a key that is being processed was added again, and so is processed once more.
func (q *Queue) Repeats(key Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.marks[key] == again
}

// nextTimer returns when the first key is due that a sleeping space has to wake for.
func (q *Queue) nextTimer() (at time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.later {
		if !t.idle && (!ok || t.at.Before(at)) {
			at, ok = t.at, true
		}
	}
	return at, ok
}

// length returns how many keys wait.
func (q *Queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.first) + len(q.rest)
}

// unsynced returns how many keys did not succeed, and are due again later.
func (q *Queue) unsynced() (count int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.later {
		if t.refused || t.failed {
			count++
		}
	}
	return count
}
