// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"slices"
	"time"
)

// slowStart is how long a start may take before it is a slow one. At most half of
// the starts under way at once are slow, so that spaces that are slow to start,
// which a tenant can see to, hold up each other and not the rest.
const slowStart = 10 * time.Second

// errGaveWay says that a start was given up for others.
var errGaveWay = errors.New("its start took too long while other spaces waited to start; Berth starts it again in parallel to the others")

// enqueue queues a space that sleeps. There is one entry a space, however many
// want it, and the first come is the first served: who asks for many spaces
// waits longer, not the others.
func (s *Shard) enqueue(p *place, why cause) {
	p.cause, p.wanted = why, s.config.Clock.Now()
	p.set(queued, p.wanted)
	switch {
	case p.suspect != nil && !p.hurried:
		p.later = false
		s.suspects = append(s.suspects, p)
		slices.SortStableFunc(s.suspects, bySuspicion)
	case p.later:
		s.later = append(s.later, p)
	case why == byRestart: // it was running, and others have waited for longer than it will
		s.queue = slices.Insert(s.queue, 0, p)
	default:
		s.queue = append(s.queue, p)
	}
	s.dispatch()
	if p.state == queued {
		s.look() // a slow start may have to give way
	}
}

func (s *Shard) unqueue(p *place) {
	is := func(o *place) bool { return o == p }
	s.queue = slices.DeleteFunc(s.queue, is)
	s.later = slices.DeleteFunc(s.later, is)
	s.suspects = slices.DeleteFunc(s.suspects, is)
	p.later = false
}

// waiting counts the spaces that could be started if there were a place.
func (s *Shard) waiting() int {
	n := len(s.queue) + len(s.later)
	if len(s.suspects) > 0 && s.mayTry(s.suspects[0]) {
		n++
	}
	return n
}

// dispatch starts what is queued, as far as the bounds allow. It is called
// whenever something is queued or has ended.
func (s *Shard) dispatch() {
	for s.starting < s.config.StartsMax && !s.stopped {
		from, i := s.nextStart()
		if from == nil {
			return
		}
		if s.config.SpacesMax > 0 && s.awake >= s.config.SpacesMax {
			s.sleepIdlest()
			return
		}
		p := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		s.begin(p)
	}
}

// nextStart is where the next space to start is, nil if none may start now: first
// what somebody waits for, then a suspect if none is on trial but its own group, then
// the others. The first of a group is started while no other start is under way.
func (s *Shard) nextStart() (from *[]*place, i int) {
	if i := s.mayStart(s.queue); i >= 0 {
		return &s.queue, i
	}
	if len(s.suspects) > 0 && len(s.queue) == 0 && s.mayTry(s.suspects[0]) {
		if s.starting > 0 && len(s.trials) == 0 {
			return nil, 0
		}
		return &s.suspects, 0
	}
	if i := s.mayStart(s.later); i >= 0 {
		return &s.later, i
	}
	return nil, 0
}

// mayStart is the first of a queue that may start, -1 if none may.
func (s *Shard) mayStart(queue []*place) int {
	full := s.slow >= s.slowMax()
	return slices.IndexFunc(queue, func(p *place) bool { return !full || !p.slow })
}

func (s *Shard) slowMax() int { return max(1, s.config.StartsMax/2) }

// dueStarting looks whether a start has become a slow one, and gives it up if
// there are too many of these and others wait. It returns when to look again.
func (s *Shard) dueStarting(p *place, now time.Time) time.Time {
	if !p.slow {
		if at := p.since.Add(slowStart); at.After(now) {
			return at
		}
		p.slow, p.newSlow = true, true
		s.slow++
	}
	if p.newSlow && !p.gaveWay && s.slow > s.slowMax() && slices.ContainsFunc(s.queue, func(o *place) bool { return !o.slow }) {
		p.gaveWay = true
		s.slow-- // it is as good as ended
		p.abort()
	}
	return time.Time{}
}

// endStart notes that a start has ended, and how long it took.
func (s *Shard) endStart(p *place, now time.Time) {
	s.starting--
	if p.slow && !p.gaveWay {
		s.slow--
	}
	p.newSlow, p.gaveWay = false, false
	p.slow = now.Sub(p.since) >= slowStart
}
