// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"maps"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// defaultDuration is that of a Lease that says none. No Lease lasts longer than maxDuration.
	defaultDuration, maxDuration = 4 * time.Second, time.Minute
	// lostAfter is how long a shard is not ready until moves to it are withdrawn.
	lostAfter = time.Minute
	// releasedFor is for how long a shard that has given its Lease back isn't dead: it is being restarted. Its spaces have moved away before,
	// unless that took too long.
	releasedFor = 15 * time.Second
	// witnesses is how often another Lease must have changed since that of a shard did, so that the shard is dead. Otherwise, it may be that
	// the host didn't accept changes, or that this process didn't hear of them.
	witnesses = 3
)

// liveness notes which Leases are renewed. A Lease is alive if it changed within its duration by the monotonic clock of this process, as
// the node lifecycle controller does it: the clocks of the machines on which shards run have no influence. It is safe for concurrent use.
type liveness struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	leases map[string]renewal
	// changes is how often each Lease has changed.
	changes map[string]int
	// unready is since when shards are not ready.
	unready map[string]time.Time
}

// renewal is the last change of a Lease.
type renewal struct {
	version  string
	at       time.Time // zero until a change was seen
	duration time.Duration
	// found is when the Lease was found as the process started, and zero if it wasn't, or has changed since.
	found time.Time
	// released is when the Lease was given back, and zero if it is held.
	released time.Time
	// others is how often each Lease had changed by then.
	others map[string]int
}

func newLiveness(c clock.PassiveClock) *liveness {
	return &liveness{clock: c, leases: map[string]renewal{}, changes: map[string]int{}, unready: map[string]time.Time{}}
}

// note records a Lease as it is now. What it was when the process started says nothing about when it was renewed. It reports whether
// a Lease that was not alive is so now.
func (l *liveness) note(lease *coordinationv1.Lease, atStart bool) (revived bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.leases[lease.Name]
	if last.version == lease.ResourceVersion {
		return false
	}
	next := renewal{version: lease.ResourceVersion, duration: defaultDuration, others: maps.Clone(l.changes)}
	if seconds := ptr.Deref(lease.Spec.LeaseDurationSeconds, 0); seconds > 0 {
		next.duration = min(time.Duration(seconds)*time.Second, maxDuration)
	}
	switch now := l.clock.Now(); {
	case ptr.Deref(lease.Spec.HolderIdentity, "") == "": // a shard that ends gives its Lease back
		next.released = now
	case !known && atStart:
		next.found = now
	default:
		next.at = now
	}
	if known {
		l.changes[lease.Name]++
	}
	l.leases[lease.Name] = next
	return !l.alive(last) && l.alive(next)
}

// forget drops a Lease that was deleted.
func (l *liveness) forget(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.leases, name)
	delete(l.changes, name)
}

func (l *liveness) alive(r renewal) bool { return !r.at.IsZero() && l.clock.Since(r.at) < r.duration }

// check reports whether the Lease of a shard is alive, and when it ends unless it is renewed.
func (l *liveness) check(name string) (alive bool, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.leases[name]
	return l.alive(last), last.duration - l.clock.Since(last.at)
}

// dead reports whether the process of a shard has ended or hangs: its Lease has not changed for its duration, though the host accepts
// changes of others. A shard without a Lease isn't dead: it creates one.
func (l *liveness) dead(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.leases[name]
	if !known || l.alive(last) {
		return false
	}
	switch {
	case !last.released.IsZero():
		if l.clock.Since(last.released) < releasedFor {
			return false
		}
	case last.at.IsZero():
		if l.clock.Since(last.found) < last.duration {
			return false
		}
	}
	for other, changes := range l.changes {
		if other != name && changes-last.others[other] >= witnesses {
			return true
		}
	}
	return false
}

// open reports whether it can't be known yet if the Lease of a shard is alive, and for how long at most.
func (l *liveness) open(name string) (open bool, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.leases[name]
	left = last.duration - l.clock.Since(last.found)
	return !last.found.IsZero() && left > 0, left
}

// lost notes whether a shard is ready, and reports whether it has not been for lostAfter.
func (l *liveness) lost(name string, ready bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ready {
		delete(l.unready, name)
		return false
	}
	since, known := l.unready[name]
	if !known {
		since = l.clock.Now()
		l.unready[name] = since
	}
	return l.clock.Since(since) >= lostAfter
}
