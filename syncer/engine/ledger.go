// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
)

// unshown is how long an object may take to be in the host's watches after it was counted.
const unshown = time.Minute

// sweepPause is how long at least what never came to be is not looked for again: all that is counted is looked at.
const sweepPause = 5 * time.Second

// maxKept is how many objects that were refused are looked at as soon as less is in use. Others wait for their next try.
const maxKept = 1000

// ledger counts what a space's host objects use of a quantity, as it is about to be written and as the host's watches show it.
// A nil ledger bounds nothing.
type ledger struct {
	quantity bounds.Quantity
	account  *bounds.Account
	clock    clock.PassiveClock
	there    func(hostcache.Object) bool // reports whether the host's watches show an object
	enqueue  func(Key)

	mu      sync.Mutex
	of      map[hostcache.Object]use
	swept   time.Time
	total   int64
	refused map[Key]struct{}
}

type use struct {
	amount int64
	at     time.Time // when it was counted
}

func newLedger(q bounds.Quantity, a *bounds.Account, c clock.PassiveClock, there func(hostcache.Object) bool, enqueue func(Key)) *ledger {
	if a == nil {
		return nil
	}
	return &ledger{quantity: q, account: a, clock: c, there: there, enqueue: enqueue, of: map[hostcache.Object]use{}, refused: map[Key]struct{}{}}
}

// Take counts what an object is about to use, or returns a [*bounds.ExceededError] if it is more than before and than
// there is. undo makes it what it was.
func (l *ledger) Take(o hostcache.Object, amount int64) (undo func(), err error) {
	if l == nil {
		return func() {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit, was := l.account.Limit(l.quantity), l.of[o]
	if amount > was.amount && l.total-was.amount+amount > limit && l.clock.Since(l.swept) >= sweepPause {
		l.sweep()
	}
	if used := l.total - was.amount; amount > was.amount && used+amount > limit {
		l.account.Refuse(l.quantity)
		return nil, &bounds.ExceededError{Quantity: l.quantity, Asked: amount, Used: used, Limit: limit}
	}
	l.set(o, amount)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.set(o, was.amount)
	}, nil
}

// show counts what an object uses that is on the host, or is there no more.
func (l *ledger) show(o hostcache.Object, amount int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(o, amount)
}

// set counts an object. l.mu is held.
func (l *ledger) set(o hostcache.Object, amount int64) {
	was := l.of[o].amount
	if amount == 0 {
		delete(l.of, o)
	} else {
		l.of[o] = use{amount, l.clock.Now()}
	}
	l.total += amount - was
	l.account.Set(l.quantity, l.total)
	if amount < was {
		l.retry(maxProbes)
	}
}

// sweep forgets what was counted and never came to be. l.mu is held.
func (l *ledger) sweep() {
	l.swept = l.clock.Now()
	for o, u := range l.of {
		if l.clock.Since(u.at) > unshown && !l.there(o) {
			l.total -= u.amount
			delete(l.of, o)
		}
	}
}

// Keep notes that key was refused, to look at it as soon as less is in use.
func (l *ledger) Keep(key Key) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.refused) < maxKept {
		l.refused[key] = struct{}{}
	}
}

// more looks at another of those that were refused, as one of them was not.
func (l *ledger) more() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retry(1)
}

func (l *ledger) retry(n int) {
	for key := range l.refused {
		if n--; n < 0 {
			return
		}
		delete(l.refused, key)
		l.enqueue(key)
	}
}
