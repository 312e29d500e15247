// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"fmt"
	"time"
)

// Wake wakes a space, or retries one that failed, and returns when the space serves and syncs. If ctx ends first, Wake
// returns an error, and the start continues.
func (s *Shard) Wake(ctx context.Context, name string) error { return s.BeginWake(name)(ctx) }

// ExamineAhead returns a function that examines the store of a space that is about to be added, as [kine.Volume.ExamineAhead] does.
func (s *Shard) ExamineAhead(store string) (examine func(context.Context)) {
	return s.volume.ExamineAhead(store)
}

// WakeNow is Wake for an administrator: it also starts a space that is held back because it may have ended an earlier
// process.
func (s *Shard) WakeNow(ctx context.Context, name string) error {
	s.mu.Lock()
	if p := s.places[name]; p != nil && !p.removed && !s.stopped {
		s.hurry(p)
	}
	s.mu.Unlock()
	return s.Wake(ctx, name)
}

// BeginWake wakes a space after those for which it was called before. It returns a function that waits for it as Wake
// does.
func (s *Shard) BeginWake(name string) (wait func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[name]
	if p == nil {
		return func(context.Context) error { return fmt.Errorf("wake space %s: %w", name, ErrUnknown) }
	}
	w := s.want(p)
	return func(ctx context.Context) error {
		select {
		case <-w.done:
			if w.err != nil {
				return fmt.Errorf("wake space %s: %w", name, w.err)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wake space %s: %w", name, context.Cause(ctx))
		}
	}
}

// Restart makes a space read its keys again. A running space stops and wakes again: its current requests end, and new
// ones wait. What the space runs on the host keeps running. A space that does not run reads its keys when it next
// wakes.
func (s *Shard) Restart(ctx context.Context, name string) error {
	s.credentials.Forget(name)
	return s.RestartUnless(ctx, name, func(*Space) bool { return false })
}

// RestartUnless makes a space take up its settings, as Restart does, unless current returns true for the running space. current must not
// call the shard.
func (s *Shard) RestartUnless(ctx context.Context, name string, current func(*Space) bool) error {
	for {
		s.mu.Lock()
		p := s.places[name]
		if p == nil {
			s.mu.Unlock()
			return fmt.Errorf("restart space %s: %w", name, ErrUnknown)
		}
		turn, woken := p.next(), (*wake)(nil)
		state := p.state
		if state == running && current(p.space) {
			s.mu.Unlock()
			return nil
		}
		if state == running && !p.removed {
			s.halt(p)
			turn, woken = nil, s.need(p, byRestart)
		}
		s.mu.Unlock()
		switch {
		case state == asleep, state == queued:
			return nil
		case woken != nil:
			select {
			case <-woken.done:
				if woken.err != nil {
					return fmt.Errorf("restart space %s: %w", name, woken.err)
				}
				return nil
			case <-ctx.Done():
				return fmt.Errorf("restart space %s: %w", name, context.Cause(ctx))
			}
		}
		select { // it may have read its keys before they changed
		case <-turn:
		case <-ctx.Done():
			return fmt.Errorf("restart space %s: %w", name, context.Cause(ctx))
		}
	}
}

// HeldBack returns why a space does not start by itself now, if it may have ended an earlier process; nil otherwise.
func (s *Shard) HeldBack(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[name]
	switch {
	case p == nil:
	case s.isHeldBack(p):
		return p.failure
	case s.afterTrial(p) > 0:
		return heldBack{*p.suspect}
	}
	return nil
}

// WarmUp wakes a space once in the background, when nobody waits for another. So its timers become known and its host
// objects are repaired. WarmUp does not wait.
func (s *Shard) WarmUp(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[name]; p != nil && p.state == asleep && !p.removed && !s.stopped && !s.isHeldBack(p) {
		p.later = true
		s.enqueue(p, byWarmUp)
	}
}

// want starts a space for a caller from outside who waits.
func (s *Shard) want(p *place) *wake {
	p.touched = true
	if p.state == running {
		p.lastRequest = s.config.Clock.Now()
	}
	if p.state == queued && p.later && p.wake == nil {
		s.unqueue(p)
		p.state = asleep
	}
	return s.need(p, byRequest)
}

// need queues a space. All callers that want it share one start.
func (s *Shard) need(p *place, why cause) *wake {
	switch {
	case s.stopped || p.removed:
		return endedWake(ErrStopped)
	case p.state == running:
		return endedWake(nil)
	case p.wake == nil:
		p.wake = newWake()
	}
	w := p.wake
	switch p.state {
	case asleep:
		s.enqueue(p, why)
	case stopping:
		p.cause = why
	case queued, starting, running:
	}
	return w
}

func (s *Shard) begin(p *place) {
	p.set(starting, s.config.Clock.Now())
	p.later, p.packed = false, false
	p.changed.Store(false)
	p.release()
	s.awake++
	s.starting++
	ctx, abort := context.WithTimeout(s.life, startTimeout)
	p.abort = abort
	if p.suspect != nil && p.hurried && !s.mayTry(p) {
		p.suspect = nil // only one group is on trial at a time
	}
	p.hurried = false
	prepared, suspect, since := p.prepared, p.suspect, p.since
	if suspect != nil {
		s.trials = append(s.trials, p)
	}
	if p.slow {
		s.slow++
	}
	s.work.Go(func() {
		defer abort()
		s.logged(s.log.Started(p.name, since, suspect))
		space, err := s.startSpace(ctx, p.name, prepared)
		if err != nil {
			s.logged(s.log.Stopped(p.name))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil && p.gaveWay && !p.removed {
			err = errGaveWay
		}
		s.endStart(p, s.config.Clock.Now())
		p.abort = nil
		took := s.config.Clock.Since(p.wanted)
		if s.config.Woken != nil {
			s.config.Woken(p.name, took, err)
		}
		if err != nil {
			s.awake--
			s.endTrial(p)
			s.fail(p, err)
			s.settle(p)
		} else {
			s.run(p, space)
			s.config.Logger.Info("Space woke", "space", p.name, "cause", p.cause, "duration", took)
		}
		s.dispatch()
		s.look()
	})
}

// run makes a started space available in its place.
func (s *Shard) run(p *place, space *Space) {
	now := s.config.Clock.Now()
	p.space, p.prepared, p.started, p.failure = space, true, true, nil
	s.credentials.Forget(p.name) // the start may have renewed its keys
	p.lastRequest = time.Time{}
	if p.touched {
		p.lastRequest = now
	}
	p.touched, p.busyUntil = false, time.Time{}
	p.set(running, now)
	p.resolve(nil)
	s.work.Go(func() {
		space.supervise()
		s.logged(s.log.Stopped(p.name))
		s.ended(p)
	})
	if p.removed {
		s.halt(p)
	}
}

// halt stops a running space. ended is called when it has stopped.
func (s *Shard) halt(p *place) {
	p.set(stopping, s.config.Clock.Now())
	s.leaving++
	p.space.requestStop()
}

// ended updates a place when its space has stopped, by halt or by itself.
func (s *Shard) ended(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := p.space
	p.space = nil
	s.credentials.Forget(p.name)
	p.stopErr = space.stopErr
	s.endTrial(p)
	s.awake--
	if p.state == stopping {
		s.leaving--
	}
	if s.giveBack.IsZero() {
		s.giveBack = s.config.Clock.Now().Add(giveBackAfter)
	}
	evicted := p.evicted
	p.evicted = nil
	switch {
	case space.err != nil:
		s.fail(p, space.err)
	case evicted != nil && !p.removed:
		p.failures = max(p.failures, memoryFailures)
		s.fail(p, evicted)
		p.prepared = true // its objects on the host have not changed
	default:
		p.failures = 0
		p.set(asleep, s.config.Clock.Now())
		logger := s.config.Logger.WithValues("space", p.name)
		if !p.timer.IsZero() {
			logger = logger.WithValues("nextWake", p.timer)
		}
		logger.Info("Space stopped")
	}
	s.settle(p)
	s.dispatch()
	s.look()
}

// settle removes or queues a place again, if that was asked for while its space was ending.
func (s *Shard) settle(p *place) {
	switch {
	case p.removed:
		s.drop(p)
	case p.wake != nil && !s.stopped:
		s.enqueue(p, p.cause)
	}
}

// fail records why a space does not run, and when to retry. The pause grows with each failure, so that a broken space
// does not use up the processor.
func (s *Shard) fail(p *place, err error) {
	now := s.config.Clock.Now()
	if p.state == running && now.Sub(p.since) > lastRetry {
		p.failures = 0
	}
	p.failures++
	p.failure = err
	p.prepared = false
	p.retry = now.Add(backoff(p.failures))
	p.set(asleep, now)
	p.resolve(err)
	if p.removed {
		return // it ended because it is being removed
	}
	s.config.Logger.Error(err, "Space could not run; Berth retries", "space", p.name, "failures", p.failures, "nextRetry", p.retry)
}

// backoff returns the pause after this number of failures in a row.
func backoff(failures int) time.Duration {
	pause := firstRetry
	for range failures - 1 {
		if pause *= 2; pause >= lastRetry {
			return lastRetry
		}
	}
	return pause
}
