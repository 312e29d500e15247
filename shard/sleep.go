// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// restTimeout limits the check whether a space may sleep.
const restTimeout = 15 * time.Second

// againAfter is the pause of Sleep before it checks a busy space again.
const againAfter = 200 * time.Millisecond

// quietTime is how long nothing must have been written to a space before it may sleep. After that time, each write has
// reached the syncer and the controllers. Earlier, they would wrongly report that they have no work.
const quietTime = time.Second

// quietTimeout is how long Sleep waits until nothing is written, so that a client that writes all the time can't keep
// the space awake.
const quietTimeout = 10 * time.Second

var (
	errFresh = errors.New("the space was written to a moment ago")
	errBusy  = errors.New("its syncer is busy, or its host objects are changing")
	errInUse = errors.New("the space is in use")
	errSoon  = errors.New("one of its timers expires soon")
)

// Sleep puts a space to sleep as soon as it has no work under way, even if it is in use: current requests end. If ctx
// ends first, Sleep returns why the space does not sleep.
func (s *Shard) Sleep(ctx context.Context, name string) error {
	var busy error
	began := s.config.Clock.Now()
	for {
		s.mu.Lock()
		p := s.places[name]
		if p == nil {
			s.mu.Unlock()
			return fmt.Errorf("put space %s to sleep: %w", name, ErrUnknown)
		}
		if p.state == queued && p.wake == nil { // no caller waits for the start
			s.unqueue(p)
			p.set(asleep, s.config.Clock.Now())
		}
		state := p.state
		if state == asleep {
			s.mu.Unlock()
			return nil
		}
		turn := p.next()
		s.mu.Unlock()
		var again <-chan time.Time
		if state == running {
			quiet := quietTime
			if s.config.Clock.Since(began) > quietTimeout {
				quiet = 0
			}
			if busy = s.trySleep(ctx, p, true, quiet); busy == nil {
				return s.halted(ctx, p)
			}
			again = s.config.Clock.After(againAfter)
		}
		select {
		case <-turn:
		case <-again:
		case <-ctx.Done():
			if busy == nil {
				busy = context.Cause(ctx)
			}
			return fmt.Errorf("put space %s to sleep: %w", name, busy)
		}
	}
}

// trySleep stops a running space if it has no work under way, if nothing has been written to it for the duration quiet,
// and, unless forced, if nobody uses it. Otherwise, it returns the reason. The watch on the space's host objects begins
// before the check, so that no change is missed (T8).
func (s *Shard) trySleep(ctx context.Context, p *place, forced bool, quiet time.Duration) error {
	s.mu.Lock()
	if p.state != running || p.tryingSleep {
		s.mu.Unlock()
		return errBusy
	}
	space, asked := p.space, s.config.Clock.Now()
	p.tryingSleep = true
	p.changed.Store(false)
	s.leaving++
	s.mu.Unlock()

	unwatch, unwatchNodes := s.watchHost(p), s.watchNodes(p)
	ctx, cancel := context.WithTimeout(ctx, restTimeout)
	timer, err := space.rest(ctx, quiet)
	follows := false
	if err == nil && s.config.Settings(p.name).Placement.ByName {
		follows, err = space.followsNodes(ctx)
	}
	cancel()

	s.mu.Lock()
	defer s.mu.Unlock()
	p.tryingSleep = false
	s.leaving--
	now, idle := s.config.Clock.Now(), s.config.Idle(p.name)
	wait := now.Add(idle.within(recheck))
	switch {
	case p.state != running || p.space != space:
		err = errBusy
	case err != nil:
	case p.changed.Load():
		err = errBusy
	case !forced && (p.requests > 0 || p.lastRequest.After(asked)):
		err = errInUse
	case !forced && !timer.IsZero() && timer.Before(now.Add(idle.minSleep())):
		err = errSoon
		if timer.After(wait) {
			wait = timer
		}
	}
	if err != nil || !follows {
		unwatchNodes()
	} else {
		p.unwatchNodes = unwatchNodes
	}
	if err != nil {
		unwatch()
		p.busyUntil = wait
		s.look()
		return err
	}
	p.timer, p.unwatch = timer, unwatch
	s.halt(p)
	return nil
}

// halted waits until a stop has ended.
func (s *Shard) halted(ctx context.Context, p *place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p.state == stopping {
		turn := p.next()
		s.mu.Unlock()
		select {
		case <-turn:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			return fmt.Errorf("put space %s to sleep: %w", p.name, context.Cause(ctx))
		}
	}
	return nil
}

// watchHost sets changed when a host object of the space changes.
func (s *Shard) watchHost(p *place) (stop func()) {
	return s.host.OnChange(p.name, s.noteChange(p))
}

// watchNodes sets changed when a node of the space changes, if the space may have DaemonSets.
func (s *Shard) watchNodes(p *place) (stop func()) {
	where := s.config.Settings(p.name).Placement
	if !where.ByName {
		return func() {}
	}
	return s.host.OnNodes(p.name, where, s.noteChange(p))
}

func (s *Shard) noteChange(p *place) func() {
	return func() {
		p.changed.Store(true)
		s.look()
	}
}

// idleAt returns when a space has been idle long enough if no request comes: d after its last request, and at least
// settleTime after it woke.
func (s *Shard) idleAt(p *place, d time.Duration) time.Time {
	at := p.since.Add(s.config.Idle(p.name).within(settleTime))
	if idle := p.lastRequest.Add(d); idle.After(at) {
		at = idle
	}
	if p.busyUntil.After(at) {
		at = p.busyUntil
	}
	return at
}

// sleepIdlest puts the spaces to sleep that were idle longest, to make place for queued ones.
func (s *Shard) sleepIdlest() {
	wanted := min(s.waiting(), s.config.StartsMax-s.starting) - s.leaving
	if wanted <= 0 {
		return
	}
	now := s.config.Clock.Now()
	var idle []*place
	for _, p := range s.places {
		if p.state == running && !p.tryingSleep && p.requests == 0 && !s.idleAt(p, inUse).After(now) {
			idle = append(idle, p)
		}
	}
	slices.SortFunc(idle, func(a, b *place) int {
		return cmp.Or(a.lastRequest.Compare(b.lastRequest), a.since.Compare(b.since))
	})
	for _, p := range idle[:min(wanted, len(idle))] {
		s.work.Go(func() { _ = s.trySleep(s.life, p, false, quietTime) })
	}
}
