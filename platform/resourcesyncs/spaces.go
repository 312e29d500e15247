// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"maps"
	"slices"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/crdshares"
	"github.com/berth-dev/berth/syncer/declaration"
)

// spaceSyncs are what one space has.
type spaceSyncs struct {
	of       crdshares.Subject
	has      []*declaration.Declaration // ordered by name
	version  string
	reported string // the version that was reported last
}

// Of returns the declarations that are in force for a space, ordered by name. Their objects on the host are known.
func (s *Syncs) Of(space string) []*declaration.Declaration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if is := s.spaces[space]; is != nil {
		return slices.Clone(is.has)
	}
	return nil
}

// Unknown returns the names of the ResourceSyncs of which it isn't known yet whether they are in force for a space, ordered. What a process
// of its own has of these, it keeps. known is false while that isn't known of any.
func (s *Syncs) Unknown(space string) (names []string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.spaces[space]
	if is == nil || !s.listed[listOfSyncs] || !s.listed[listOfDefinitions] {
		return nil, false
	}
	for _, name := range slices.Sorted(maps.Keys(s.syncs)) {
		sync, state := s.syncs[name], s.states[name]
		if !is.of.SelectedBy(sync.Spec.Tenants) {
			continue
		}
		_, shares := s.options.ForcedIn(space, name)
		begins := state == nil || state.of.uid != sync.UID || state.inForce == nil && (state.problem.passing || state.checked != nil)
		if (begins || !shares) && !slices.ContainsFunc(is.has, func(d *declaration.Declaration) bool { return d.Name == name }) {
			names = append(names, name)
		}
	}
	return names, true
}

// Version identifies what [Syncs.Of] returns: it changes if and only if that does.
func (s *Syncs) Version(space string) string { return declaration.WatchedVersions(s.Of(space)) }

// Observe notes what an object says of its space, and changes what the space has at once if that makes a difference.
func (s *Syncs) Observe(object *v1alpha1.Space) {
	of := crdshares.SubjectOf(object)
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.spaces[object.Name]
	switch {
	case is == nil: // it has not begun, so it is not reported
		is = &spaceSyncs{of: of}
		s.spaces[object.Name] = is
		s.give(object.Name, is)
		is.reported = is.version
	case !is.of.Equal(of):
		is.of = of
		s.give(object.Name, is)
		s.Note()
	}
}

// Forget forgets a deleted space.
func (s *Syncs) Forget(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.spaces, space)
}

// giveAll gives all spaces what is in force, and returns those for which that is something else than was reported last. The caller
// holds mu.
func (s *Syncs) giveAll() (changed []string) {
	for name, is := range s.spaces {
		s.give(name, is)
		if is.version != is.reported {
			is.reported = is.version
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

// give gives a space what is in force for it. Of what isn't known, it keeps what it has. The caller holds mu.
func (s *Syncs) give(name string, is *spaceSyncs) {
	var has []*declaration.Declaration
	for _, of := range slices.Sorted(maps.Keys(s.states)) {
		state, sync := s.states[of], s.syncs[of]
		if state.inForce == nil || sync == nil || sync.UID != state.of.uid || !is.of.SelectedBy(sync.Spec.Tenants) {
			continue
		}
		forced, known := s.options.ForcedIn(name, of)
		if !known {
			forced = slices.ContainsFunc(is.has, func(d *declaration.Declaration) bool { return d.Name == of })
		}
		if forced {
			has = append(has, state.inForce)
		}
	}
	if version := declaration.WatchedVersions(has); version != is.version {
		is.has, is.version = has, version
	}
}
