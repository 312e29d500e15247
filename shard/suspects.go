// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/shard/crashlog"
)

// noteUseEvery is how often it is noted which spaces do something without a
// request that begins.
const noteUseEvery = 2 * time.Second

// heldBack says why a space is not started: the process that ran it ended
// uncleanly, and it may be the cause.
type heldBack struct{ crashlog.Held }

// Error implements error.
func (h heldBack) Error() string {
	if h.Culprit == 0 {
		return fmt.Sprintf("Berth's process ended unexpectedly %s in a row while this space was active. "+
			"It is started after the others and apart from other suspects, to find out whether it is the cause; `berth wake` starts it now", times(h.Active))
	}
	return fmt.Sprintf("Berth's process ended unexpectedly %s while this space was started or used, so it is held back, longer each time, for the other spaces' sake. "+
		"Run it in a process of its own (isolation: Dedicated in its spec, or --dedicated), or remove what it fails on; `berth wake` starts it now", times(h.Culprit+1))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// suspect holds a new place back if its space may have ended the process before.
func (s *Shard) suspect(p *place) {
	held, ok := s.log.Held(p.name)
	if !ok {
		return
	}
	p.suspect = &held
	if held.Wait > 0 {
		p.failure, p.retry = heldBack{held}, s.began.Add(held.Wait)
		s.look()
		s.config.Logger.Error(p.failure, "Space is held back, as it may have ended the process; Berth starts it later", "space", p.name, "nextRetry", p.retry)
	}
}

// bySuspicion orders suspects, the most suspicious first.
func bySuspicion(a, b *place) int { return cmp.Compare(a.suspect.Rank, b.suspect.Rank) }

// hurry lets a suspect start as if it were none. It is on trial all the same, if
// no other is.
func (s *Shard) hurry(p *place) {
	if p.suspect == nil || p.state != asleep && p.state != queued {
		return
	}
	p.hurried = true
	if p.state == queued {
		s.unqueue(p)
		s.enqueue(p, p.cause)
	}
}

// isHeldBack reports whether a space is not to be started for itself now.
func (s *Shard) isHeldBack(p *place) bool {
	held := heldBack{}
	return errors.As(p.failure, &held) && p.state == asleep && p.retry.After(s.config.Clock.Now())
}

// afterTrial is how long a suspect has to wait for those that are on trial, zero
// if it need not.
func (s *Shard) afterTrial(p *place) time.Duration {
	if p.suspect == nil || p.hurried || p.state != queued || s.mayTry(p) {
		return 0
	}
	var ends time.Time
	for _, other := range s.trials {
		ends = latest(ends, trialEnds(other))
	}
	return max(firstRetry, ends.Sub(s.config.Clock.Now()))
}

// mayTry reports whether a suspect may be put on trial now: with its own group, or if no other is.
func (s *Shard) mayTry(p *place) bool {
	return len(s.trials) == 0 || s.trials[0].suspect.Group == p.suspect.Group
}

// trialEnds is when a space on trial, whatever its state, will have survived.
func trialEnds(p *place) time.Time { return p.since.Add(p.suspect.Trial) }

// dueTrial ends the trial of a running space that has survived it. It returns when
// to look again, zero if the space is not on trial.
func (s *Shard) dueTrial(p *place, now time.Time) time.Time {
	if !slices.Contains(s.trials, p) {
		return time.Time{}
	}
	if at := trialEnds(p); at.After(now) {
		return at
	}
	s.endTrial(p)
	p.suspect = nil
	s.config.Logger.Info("Space ran long enough to be no longer suspected of a crash", "space", p.name)
	s.work.Go(func() { s.logged(s.log.Survived(p.name)) })
	s.dispatch()
	return time.Time{}
}

// endTrial ends the trial of a space that has survived it, or that does not run any
// more. The latter is on trial again when it is started again.
func (s *Shard) endTrial(p *place) {
	s.trials = slices.DeleteFunc(s.trials, func(o *place) bool { return o == p })
}

// noteUse notes which spaces do something, until the shard stops.
func (s *Shard) noteUse() {
	for {
		timer := s.config.Clock.NewTimer(noteUseEvery)
		select {
		case <-s.life.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		for _, name := range s.used() {
			s.log.Used(name)
		}
		s.logged(s.log.Clear())
		s.noteMemory()
	}
}

// noteMemory notes how much memory is accounted to the requests of each space. What its store holds is not counted: that does
// no harm for as long as nobody reads it. Nor are watches of which nothing waits: they hold the same for days, and would make
// a space that has a hundred of them more suspicious, at each crash, than all that are busy.
func (s *Shard) noteMemory() {
	accounts, _ := s.weights()
	bytes := make(map[string]int64, len(accounts))
	for name, account := range accounts {
		bytes[name] = account.Memory() - bounds.IdleWatch*account.Used(bounds.Watches)
	}
	s.logged(s.log.Weigh(bytes))
}

// used are the spaces that do something now.
func (s *Shard) used() (names []string) {
	quiet := map[string]*Space{}
	s.mu.Lock()
	for name, p := range s.places {
		switch {
		case p.state == starting, p.state == running && p.requests > 0:
			names = append(names, name)
		case p.state == running:
			quiet[name] = p.space
		}
	}
	s.mu.Unlock()
	for name, space := range quiet {
		if space.plane.Quiet() < noteUseEvery || !space.syncer.Idle() {
			names = append(names, name)
		}
	}
	return names
}

// logged logs what kept a note about active spaces from being written: the spaces
// run all the same.
func (s *Shard) logged(err error) {
	if err != nil {
		s.config.Logger.Error(err, "Could not record which spaces are active; after a crash, Berth may not find the space that caused it")
	}
}
