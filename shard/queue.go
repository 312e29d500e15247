// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"errors"
	"slices"
	"time"
)

// slowStart is the duration from which a start counts as slow. At most half of the current starts may be slow. A tenant
// can make its space slow to start, and such spaces must delay only each other.
const slowStart = 10 * time.Second

// errGaveWay is the error of a start that was ended in favor of others.
var errGaveWay = errors.New("its start took too long while other spaces waited to start; Berth starts it again in parallel to the others")

// enqueue adds a sleeping space to the queue. A space has one entry, however many callers want it, and the queue is in
// order of arrival. So someone who wants many spaces makes only those wait.
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
	case why == byRestart: // it was running, and others wait longer
		s.queue = slices.Insert(s.queue, 0, p)
	default:
		s.queue = append(s.queue, p)
	}
	s.dispatch()
	if p.state == queued {
		s.look() // a slow start may have to end in favor of this one
	}
}

func (s *Shard) unqueue(p *place) {
	is := func(o *place) bool { return o == p }
	s.queue = slices.DeleteFunc(s.queue, is)
	s.later = slices.DeleteFunc(s.later, is)
	s.suspects = slices.DeleteFunc(s.suspects, is)
	p.later = false
}

// waiting counts the spaces that could start if fewer were awake.
func (s *Shard) waiting() int {
	n := len(s.queue) + len(s.later)
	if len(s.suspects) > 0 && s.mayTry(s.suspects[0]) {
		n++
	}
	return n
}

// dispatch starts queued spaces as far as the limits allow. It is called whenever a space is queued or has ended.
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

// nextStart returns the queue and the index of the space to start next; nil if none may start now. Spaces that somebody
// waits for are first, then suspects if no other group is on trial, then the others. While the first space of a group
// starts, no other space starts.
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

// mayStart returns the index of the first space in a queue that may start; -1 if there is none.
func (s *Shard) mayStart(queue []*place) int {
	full := s.slow >= s.slowMax()
	return slices.IndexFunc(queue, func(p *place) bool { return !full || !p.slow })
}

func (s *Shard) slowMax() int { return max(1, s.config.StartsMax/2) }

// dueStarting checks whether a start has become slow, and ends it if there are too many slow ones and others wait. It
// returns when it must be called again.
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
		s.slow-- // its start is about to end
		p.abort()
	}
	return time.Time{}
}

// endStart records that a start has ended, and whether it was slow.
func (s *Shard) endStart(p *place, now time.Time) {
	s.starting--
	if p.slow && !p.gaveWay {
		s.slow--
	}
	p.newSlow, p.gaveWay = false, false
	p.slow = now.Sub(p.since) >= slowStart
}
