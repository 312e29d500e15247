// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/registry"
)

const (
	// controllerRetry and controllerRetryMax bound the pause before a controller
	// is started again that could not be built, or ended by itself.
	controllerRetry    = time.Second
	controllerRetryMax = time.Minute
)

var errEnded = errors.New("it ended by itself")

// buildFunc builds a controller. What it returns runs the controller until the
// context ends, and must be called once, even with a context that has ended. It
// is nil for a controller that a feature gate has off.
type buildFunc func(ctx context.Context, name string) (run func(context.Context), err error)

// supervisor runs controllers while there is work for them, or may be: a
// controller that is not needed is not there at all. It starts one when an
// object is written that the controller is for, and stops it when there has
// been none for some time.
//
// A controller reads all that there is when it starts, so what happens
// meanwhile is not lost; and the store is looked at before one stops, so that
// nothing is left undone.
type supervisor struct {
	store  *registry.Reader
	build  buildFunc
	quiet  time.Duration
	clock  clock.Clock
	logger klog.Logger

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	units map[string]*unit
}

// unit is one controller. The supervisor's lock guards its fields.
type unit struct {
	name   string
	demand *demand // nil if it always runs

	wants  int       // how often it was found to be needed
	wanted time.Time // when that was last
	live   bool      // it is being run
	up     bool      // its controller runs
	first  chan struct{}
	once   sync.Once // closes first, when it has been tried to start it

	// found was the last object seen that it is needed for. Only one goroutine
	// looks at it at a time.
	found string
}

var _ informer.Observer = (*supervisor)(nil)

func newSupervisor(
	wanted []string, demands map[string]demand, store *registry.Reader, build buildFunc, quiet time.Duration, c clock.Clock, logger klog.Logger,
) *supervisor {
	s := &supervisor{store: store, build: build, quiet: quiet, clock: c, logger: logger, units: map[string]*unit{}}
	s.ctx, s.cancel = context.WithCancel(klog.NewContext(context.Background(), logger))
	for _, name := range wanted {
		u := &unit{name: name, first: make(chan struct{})}
		if d, ok := demands[name]; ok {
			u.demand = &d
		}
		s.units[name] = u
	}
	return s
}

// start begins to follow the feed, and returns when the controllers run that are
// needed now, or could not be built; these are tried again. It doesn't wait for those
// whose work may be anywhere in the store, because reading all of it takes time.
func (s *supervisor) start(ctx context.Context, feed *informer.Feed) error {
	feed.Observe(s)
	if err := feed.WaitReady(ctx); err != nil {
		return fmt.Errorf("watch the store: %w", err)
	}
	for _, u := range s.units {
		if u.demand.ofWholeStore() {
			continue
		}
		needed, err := s.needed(ctx, u)
		if err != nil {
			return fmt.Errorf("look for work for %s: %w", u.name, err)
		}
		if needed {
			s.want(u)
		}
	}
	for _, u := range s.units {
		s.mu.Lock()
		live := u.live
		s.mu.Unlock()
		if !live {
			continue
		}
		select {
		case <-u.first:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, u := range s.units {
		if u.demand.ofWholeStore() {
			s.search(u)
		}
	}
	return nil
}

// search looks for work for u in the background, and runs u if there is any, or if an
// object was written meanwhile that u is for.
func (s *supervisor) search(u *unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.live || s.ctx.Err() != nil {
		return
	}
	u.live = true // so that nobody else runs it
	before := u.wants
	safego.Go(&s.running, "look for work for "+u.name, func() {
		needed, err := s.needed(s.ctx, u)
		s.mu.Lock()
		found := s.ctx.Err() == nil && (needed || err != nil || u.wants != before) // also if it can't be told
		if u.live = found; found {
			u.wanted = s.clock.Now()
		}
		s.mu.Unlock()
		if found {
			s.live(u)
		}
	}, nil)
}

// Stop ends the controllers and waits for them.
func (s *supervisor) Stop() {
	s.mu.Lock() // so that none is started after
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}

// Names returns the controllers that run.
func (s *supervisor) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.units)) {
		if s.units[name].up {
			names = append(names, name)
		}
	}
	return names
}

// Wrote wakes the controllers that the write concerns.
func (s *supervisor) Wrote(w informer.Write) {
	now := s.clock.Now()
	for _, u := range s.units {
		s.mu.Lock()
		known := u.demand == nil || u.live && now.Sub(u.wanted) < s.quiet/2
		s.mu.Unlock()
		if known {
			continue // looking at each write in a busy space would cost more
		}
		if slices.ContainsFunc(u.demand.writes, func(t trigger) bool { return t.matches(w.Key, w.Value) }) {
			s.want(u)
		}
	}
}

// Lost looks for work in the whole store.
func (s *supervisor) Lost() {
	for _, u := range s.units {
		s.want(u) // one without work stops soon
	}
}

// want notes that u is needed now, and runs it.
func (s *supervisor) want(u *unit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.wants++
	u.wanted = s.clock.Now()
	if u.live || s.ctx.Err() != nil {
		return
	}
	u.live = true
	safego.Go(&s.running, "run "+u.name, func() { s.live(u) }, nil)
}

// live runs u until it is not needed any more.
func (s *supervisor) live(u *unit) {
	retry := controllerRetry
	for {
		wants, err := s.run(u)
		u.once.Do(func() { close(u.first) })
		s.mu.Lock()
		done := s.ctx.Err() != nil || err == nil && u.wants == wants
		u.live = !done
		s.mu.Unlock()
		switch {
		case done:
			return
		case err == nil:
			continue
		}
		s.logger.Error(err, "Controller ended; Berth restarts it", "controller", u.name, "retryAfter", retry)
		select {
		case <-s.ctx.Done():
		case <-s.clock.After(retry):
		}
		retry = min(2*retry, controllerRetryMax)
	}
}

// run builds the controller and runs it while it is needed. wants is the unit's
// when it was found not to be.
func (s *supervisor) run(u *unit) (wants int, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var controller func(context.Context)
	err = safego.Call("build", func() (err error) {
		controller, err = s.build(ctx, u.name)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("build %s: %w", u.name, err)
	}
	ended := make(chan error, 1)
	if controller != nil {
		go func() {
			ended <- safego.Call("run", func() error {
				controller(ctx)
				return errEnded
			})
		}()
	}
	s.setUp(u, controller != nil)
	u.once.Do(func() { close(u.first) })
	defer s.setUp(u, false)
	wants, err = s.whileNeeded(ctx, u, ended)
	if err != nil || controller == nil {
		return wants, err
	}
	cancel()
	<-ended
	return wants, nil
}

func (s *supervisor) setUp(u *unit, up bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u.up = up
}

// whileNeeded returns when u has not been needed for the quiet time, or the
// supervisor stops. It fails when the controller ends.
func (s *supervisor) whileNeeded(ctx context.Context, u *unit, ended <-chan error) (wants int, err error) {
	for {
		s.mu.Lock()
		wants = u.wants
		rest := s.quiet - s.clock.Since(u.wanted)
		s.mu.Unlock()
		var due <-chan time.Time
		stopTimer := func() bool { return true }
		switch {
		case u.demand == nil:
		case rest > 0:
			timer := s.clock.NewTimer(rest)
			due, stopTimer = timer.C(), timer.Stop
		default:
			needed, err := s.needed(ctx, u)
			if err == nil && !needed {
				return wants, nil
			}
			s.want(u) // also if it can't be told
			continue
		}
		select {
		case <-ctx.Done():
			stopTimer()
			return wants, nil
		case err := <-ended:
			stopTimer()
			return wants, fmt.Errorf("run %s: %w", u.name, err)
		case <-due:
		}
	}
}

// needed says whether the store holds something that u is for.
func (s *supervisor) needed(ctx context.Context, u *unit) (bool, error) {
	switch {
	case u.demand == nil:
		return true, nil
	case u.demand.needed != nil:
		return u.demand.needed(ctx, s.store)
	}
	for _, t := range u.demand.writes {
		// It is most often still the same object.
		if u.found != "" {
			if holds, err := t.holds(ctx, s.store, u.found); holds || err != nil {
				return holds, err
			}
		}
	}
	for _, t := range u.demand.writes {
		var err error
		if u.found, err = t.find(ctx, s.store); u.found != "" || err != nil {
			return u.found != "", err
		}
	}
	return false, nil
}
