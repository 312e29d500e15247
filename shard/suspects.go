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

// noteUseEvery is how often the shard records the spaces that work without a new request.
const noteUseEvery = 2 * time.Second

// heldBack is the failure of a space that is not started because an earlier process ended uncleanly, and the space may
// be the cause.
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

// suspect holds back a new place if its space may have ended an earlier process.
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

// bySuspicion compares suspects; the most suspicious is the first.
func bySuspicion(a, b *place) int { return cmp.Compare(a.suspect.Rank, b.suspect.Rank) }

// hurry makes a suspect start like other spaces. It is on trial nevertheless, if no other is.
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

// isHeldBack reports whether a space may not start by itself now.
func (s *Shard) isHeldBack(p *place) bool {
	held := heldBack{}
	return errors.As(p.failure, &held) && p.state == asleep && p.retry.After(s.config.Clock.Now())
}

// afterTrial returns how long a suspect has to wait for those that are on trial; zero if it need not wait.
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

// mayTry reports whether a suspect may be on trial now: if no other is, or only those of its own group.
func (s *Shard) mayTry(p *place) bool {
	return len(s.trials) == 0 || s.trials[0].suspect.Group == p.suspect.Group
}

// trialEnds returns when a space on trial will have survived, whatever its state is.
func trialEnds(p *place) time.Time { return p.since.Add(p.suspect.Trial) }

// dueTrial ends the trial of a running space that has survived it. It returns when it must be called again; zero if the
// space is not on trial.
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

// endTrial ends the trial of a space that has survived it, or that no longer runs. The latter is on trial again at its
// next start.
func (s *Shard) endTrial(p *place) {
	s.trials = slices.DeleteFunc(s.trials, func(o *place) bool { return o == p })
}

// noteUse records which spaces work, until the shard stops.
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

// noteMemory records how much memory is accounted to the requests of each space. It does not count the contents of
// stores, which take no memory until somebody reads them. Nor does it count watches without pending events: these hold
// the same amount for days. A space with a hundred of them would be more suspicious, at each crash, than all busy
// spaces.
func (s *Shard) noteMemory() {
	accounts, _ := s.weights()
	bytes := make(map[string]int64, len(accounts))
	for name, account := range accounts {
		bytes[name] = account.Memory() - bounds.IdleWatch*account.Used(bounds.Watches)
	}
	s.logged(s.log.Weigh(bytes))
}

// used returns the spaces that work now.
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

// logged logs the error of a record about active spaces. The spaces run nevertheless.
func (s *Shard) logged(err error) {
	if err != nil {
		s.config.Logger.Error(err, "Could not record which spaces are active; after a crash, Berth may not find the space that caused it")
	}
}
