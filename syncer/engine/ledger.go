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

// unshown is how long an object may take to appear in the host's watches after it was counted.
const unshown = time.Minute

// sweepPause is the minimum pause between two searches for counted objects that were never created, because a search
// checks all of them.
const sweepPause = 5 * time.Second

// maxKept is how many rejected objects are retried as soon as less is in use. Others wait for their next retry.
const maxKept = 1000

// ledger counts how much of a quantity a space's host objects use, those in the host's watches and those about to be
// written. A nil ledger limits nothing.
type ledger struct {
	quantity bounds.Quantity
	account  *bounds.Account
	clock    clock.PassiveClock
	there    func(hostcache.Object) bool // reports whether an object is in the host's watches
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

// Take counts what an object is about to use. It returns a [*bounds.ExceededError] if that is more than before and more
// than is available. undo restores the previous amount.
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

// show counts what an object on the host uses; 0 if it is gone.
func (l *ledger) show(o hostcache.Object, amount int64) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(o, amount)
}

// set counts an object. l.mu must be held.
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

// sweep removes objects that were counted but never created. l.mu must be held.
func (l *ledger) sweep() {
	l.swept = l.clock.Now()
	for o, u := range l.of {
		if l.clock.Since(u.at) > unshown && !l.there(o) {
			l.total -= u.amount
			delete(l.of, o)
		}
	}
}

// Keep records that key was rejected, to retry it as soon as less is in use.
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

// more retries another rejected object after one succeeded.
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
