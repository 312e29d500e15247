// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// Queue is the work of one space: each key at most once at a time, several keys
// at once. At rest it holds no goroutine, timers are set only for what is due
// later, and it is no larger than the number of objects that there is something
// to do for.
//
// What is new goes before what changed: a burst of pods is on the host before
// the space hears of all that becomes of them there.
//
// There is no pool that spaces share: whoever made its own API hang, by webhooks
// that never answer, would hold the others' workers.
type Queue struct {
	do    func(context.Context, Key) next
	limit int // of keys worked on at once

	mu      sync.Mutex
	ctx     context.Context // of all work; nil until open
	closed  bool
	first   []Key          // what waits and is new to the host, in the order in which it came
	rest    []Key          // all else that waits
	turn    int            // counts takes, so that the first do not starve the rest
	marks   map[Key]mark   // of all keys that wait or are worked on
	later   map[Key]*timer // of keys that are due later
	working int
	workers sync.WaitGroup
}

// restTurn is which of the takes is for what is not new, while something new
// waits: each of so many.
const restTurn = 8

type mark int

const (
	waits  mark = iota + 1
	worked      // is worked on
	again       // is worked on, and has been added meanwhile
)

// next says when a key is due again by itself: never if after is 0.
type next struct {
	after time.Duration
	// idle is for what need not be done while the space sleeps.
	idle bool
	// wake is when it must be done at the latest, though it is idle: never if it is 0.
	wake time.Duration
	// failed is for what may well succeed as soon as other writes to the host do.
	failed bool
	// refused is for what the host, or a rule of the space, refused.
	refused bool
}

type timer struct {
	*time.Timer
	at                    time.Time // that sleep must not keep waiting, unless idle
	idle, failed, refused bool
}

func newQueue(limit int, do func(context.Context, Key) next) *Queue {
	return &Queue{do: do, limit: limit, marks: map[Key]mark{}, later: map[Key]*timer{}}
}

// open begins the work, under ctx, on what was added before and is added later.
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

// close forgets what waits, and returns when nothing is worked on any more.
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

// Add has key worked on, once more if it is worked on right now.
func (q *Queue) Add(key Key) { q.put(key, false) }

// addFirst is add for what is new.
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

// wait queues a key. q.mu is held.
func (q *Queue) wait(key Key, first bool) {
	q.marks[key] = waits
	if first {
		q.first = append(q.first, key)
	} else {
		q.rest = append(q.rest, key)
	}
}

// hire adds a worker, which leaves when nothing waits. q.mu is held.
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
		if len(q.marks) == 0 { // a burst is not remembered
			q.first, q.rest, q.marks = nil, nil, map[Key]mark{}
		}
		return key, false
	}
	key, *from = (*from)[0], (*from)[1:]
	q.marks[key] = worked
	// What comes of this run is all that counts.
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

// hasten makes due what failed and is to be tried again later.
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

// setTimer sets a key's timer. q.mu is held.
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

// putLater has key worked on after a while, unless it is before. Only its last call counts.
func (q *Queue) putLater(key Key, n next) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.setTimer(key, n)
	}
}

// due adds the key of a timer that has gone off, unless it was stopped too late.
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

// empty reports whether nothing waits and nothing is worked on.
func (q *Queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ctx != nil && len(q.marks) == 0
}

// NewWaits reports whether something waits that is new to the host.
func (q *Queue) NewWaits() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.first) > 0
}

// nextTimer is when the first key is due that sleep must not keep waiting.
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

// length is how many keys wait.
func (q *Queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.first) + len(q.rest)
}

// unsynced is how many keys did not pass, and are due again later.
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
