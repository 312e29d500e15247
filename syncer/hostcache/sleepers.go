// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"sync"
)

// sleepers are the spaces that want to know when something happens to their
// host objects: an entry each, whatever the number of objects.
type sleepers struct {
	mu    sync.RWMutex
	wakes map[string]*sleeper
}

type sleeper struct{ wake func() }

// OnChange calls wake, once, when a host object of the space is created,
// changed or deleted from now on: a pod, service, endpoint slice, config map,
// secret, ingress, gateway, route, network policy, service account, volume
// snapshot, volume claim or a volume bound to one, or a class of the tenant's own. A quota
// counts when it came to allow more, and has refused the space something. Events do not count
// (they come by the dozen, and with a change of what they are about), nor do
// disruption budgets (the host counts pods in their status), nor the host's own
// classes, which all spaces share; a space sees them when it has woken.
//
// It is for spaces that sleep, in which no [syncer.Syncer] runs. So that no change is
// missed in between, register first, then ask the syncer whether it is still
// [engine.Engine.Idle], and stop it only then. An idle syncer's own writes wake nobody.
//
// wake is called from any goroutine and must not block. stop ends the
// registration: a call of wake that is under way may end after it. A later
// registration of a space takes the place of an earlier.
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

// end ends a registration, unless it has ended or another has taken its place.
func (s *sleepers) end(space string, registered *sleeper) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wakes[space] == registered {
		delete(s.wakes, space)
	}
}

// changed wakes the space, if it is registered: whoever is by then, as one
// registration may take the place of another meanwhile.
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
