// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"sync"
)

// sleepers are the spaces that wait for changes of their host objects. Each has one entry, whatever the number of its
// objects.
type sleepers struct {
	mu    sync.RWMutex
	wakes map[string]*sleeper
}

type sleeper struct{ wake func() }

// OnChange calls wake, once, when a host object of the space is created, changed, or deleted: a pod, service, endpoint
// slice, config map, secret, ingress, gateway, route, network policy, service account, volume snapshot, volume claim or
// a volume bound to one, or an exported class. A quota counts when it allows more, and has rejected something of the
// space. Events don't count (there are many, and they come with a change of their object), nor do disruption budgets
// (the host counts pods in their status), nor the host's own classes, which all spaces share. A space sees those when
// it has woken.
//
// It is for sleeping spaces, which have no running [syncer.Syncer]. To miss no change, register first, then check that
// the syncer is still [engine.Engine.Idle], and only then stop it. An idle syncer's own writes don't wake the space.
//
// wake is called from any goroutine, and must not block. stop ends the registration; a concurrent call of wake may end
// after it. A later registration of a space replaces an earlier one.
func (h *Host) OnChange(space string, wake func()) (stop func()) {
	s := &sleeper{wake: wake}
	h.sleepers.mu.Lock()
	defer h.sleepers.mu.Unlock()
	if h.sleepers.wakes == nil {
		h.sleepers.wakes = map[string]*sleeper{}
	}
	h.sleepers.wakes[space] = s
	return func() { h.sleepers.end(space, s) }
}

// end ends a registration, unless it has ended or was replaced.
func (s *sleepers) end(space string, registered *sleeper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakes[space] == registered {
		delete(s.wakes, space)
	}
}

// changed wakes the space if it is registered, with its current registration, which may have been replaced in the
// meantime.
func (s *sleepers) changed(space string) {
	s.mu.RLock()
	asleep := s.wakes[space] != nil
	s.mu.RUnlock()
	if !asleep {
		return
	}
	s.mu.Lock()
	registered := s.wakes[space]
	delete(s.wakes, space)
	s.mu.Unlock()
	if registered != nil {
		registered.wake()
	}
}
