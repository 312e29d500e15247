// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"
	"time"
)

const (
	// longestLook is the maximum pause of the keeper, so that it notices when the system clock jumps.
	longestLook = time.Minute
	// scarceLook is the same while spaces wait because too many are awake.
	scarceLook = time.Second
	// giveBackAfter is the pause between the end of a space and the return of memory to the system. All spaces that
	// went to sleep in the meantime share one run.
	giveBackAfter = 20 * time.Second
)

// look makes the keeper check all places soon. It may be called from anywhere, with any lock held.
func (s *Shard) look() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// keep does what is due in all places until the shard stops. It is one goroutine with one timer, however many spaces
// sleep.
func (s *Shard) keep() {
	for {
		now := s.config.Clock.Now()
		next, freed, rest := s.due(now)
		if freed {
			s.giveBackMemory(rest)
		}
		timer := s.config.Clock.NewTimer(next.Sub(now))
		if !s.config.Clock.Now().Before(next) {
			s.look() // already due: if the clock was set in the meantime, the timer would expire too late
		}
		select {
		case <-s.life.Done():
		case <-s.poke:
		case <-timer.C():
		}
		timer.Stop()
		if s.life.Err() != nil {
			return
		}
	}
}

// due does what is due now, and returns when it must be called again. freed reports that spaces went to sleep whose
// memory can be returned to the system; rest are the places of those that still sleep.
func (s *Shard) due(now time.Time) (next time.Time, freed bool, rest []*place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(longestLook)
	switch {
	case s.giveBack.IsZero():
	case s.giveBack.After(now):
		next = s.giveBack
	default:
		s.giveBack, freed = time.Time{}, true
	}
	for _, p := range s.inTurn() {
		if freed && p.state == asleep && !p.packed {
			p.packed = true
			rest = append(rest, p)
		}
		at := s.dueIn(p, now)
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	if s.waiting() > 0 {
		s.dispatch()
		if scarce := now.Add(scarceLook); scarce.Before(next) {
			next = scarce
		}
	}
	return next, freed, rest
}

// inTurn returns all places in the order in which they are started. Suspects are last, the most suspicious of them
// first.
func (s *Shard) inTurn() []*place {
	all, suspects := make([]*place, 0, len(s.places)), []*place(nil)
	for _, p := range s.places {
		if p.suspect != nil {
			suspects = append(suspects, p)
		} else {
			all = append(all, p)
		}
	}
	slices.SortFunc(suspects, bySuspicion)
	return append(all, suspects...)
}

// dueIn does what is due for a place, and returns when it must be called again. Zero means that a change of the place's
// state triggers the next call.
func (s *Shard) dueIn(p *place, now time.Time) time.Time {
	switch p.state {
	case asleep:
		if p.failure == nil && p.changed.Load() {
			s.need(p, byHost)
			return time.Time{}
		}
		at := s.wakesAt(p)
		if at.IsZero() || at.After(now) {
			return at
		}
		if p.failure != nil {
			s.need(p, byRetry)
		} else {
			s.need(p, byTimer)
		}
	case stopping:
		if p.changed.Load() {
			s.need(p, byHost) // when it has stopped
		}
	case starting:
		return s.dueStarting(p, now)
	case running:
		return earliest(s.dueTrial(p, now), s.dueIdle(p, now))
	case queued:
	}
	return time.Time{}
}

// dueIdle tries to put a running space to sleep that has been idle for long enough, and returns when it must be called
// again.
func (s *Shard) dueIdle(p *place, now time.Time) time.Time {
	after := s.config.Idle(p.name).After
	if after <= 0 || p.tryingSleep {
		return time.Time{}
	}
	if p.requests > 0 {
		return now.Add(after)
	}
	at := s.idleAt(p, after)
	if at.After(now) {
		return at
	}
	s.work.Go(func() { _ = s.trySleep(s.life, p, false, quietTime) })
	return time.Time{}
}

// earliest returns the earlier of two times, ignoring zero times.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// wakesAt returns when a sleeping space wakes by itself, or zero if never.
func (s *Shard) wakesAt(p *place) time.Time {
	switch {
	case p.failure != nil:
		return p.retry
	case p.timer.IsZero():
		return time.Time{}
	default:
		return p.timer.Add(-lead)
	}
}
