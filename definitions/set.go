// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Set is what one space has of the definitions that the platform shares, and its policy. It doesn't change. A nil Set is empty.
type Set struct {
	policy  Policy
	shared  map[string]*Shared
	version string
	// fullVersion is version if there are no webhooks.
	fullVersion string
}

// NewSet returns the set of a space. Each definition is as [Serve] returns it. Those that are neither forced nor in range are left out.
func NewSet(policy Policy, shared ...*Shared) *Set {
	s := &Set{policy: policy, shared: map[string]*Shared{}}
	for _, one := range shared {
		if one.Forced || one.InRange {
			s.shared[one.CRD.Name] = one
		}
	}
	if len(s.shared) == 0 {
		return s
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%q\n", policy)
	for _, name := range s.Names() {
		one := s.shared[name]
		_, _ = fmt.Fprintf(hash, "%q %q %q %t %t %q\n", name, one.CRD.UID, one.CRD.ResourceVersion, one.Forced, one.InRange, shareOf(one.CRD))
	}
	s.version = hex.EncodeToString(hash.Sum(nil))
	for _, name := range s.Names() {
		if webhook := s.shared[name].Webhook; webhook != nil {
			_, _ = fmt.Fprintf(hash, "%q %q\n", name, webhook.version())
		}
	}
	s.fullVersion = hex.EncodeToString(hash.Sum(nil))
	return s
}

// WithPolicy returns the set with another policy. An empty one is LocalCRDFirst.
func (s *Set) WithPolicy(policy Policy) *Set {
	if s == nil || s.Policy() == (&Set{policy: policy}).Policy() {
		return s
	}
	return NewSet(policy, slices.Collect(maps.Values(s.shared))...)
}

// Names are those of the shared definitions, sorted.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.shared))
}

// Forced returns the names of the forced definitions of an API group, sorted.
func (s *Set) Forced(group string) (names []string) {
	for _, name := range s.Names() {
		if one := s.shared[name]; one.Forced && one.CRD.Spec.Group == group {
			names = append(names, name)
		}
	}
	return names
}

// Of returns the shared definition of a name; nil if there is none.
func (s *Set) Of(name string) *Shared {
	if s == nil {
		return nil
	}
	return s.shared[name]
}

// Policy returns the policy of the space.
func (s *Set) Policy() Policy {
	if s == nil || s.policy == "" {
		return LocalCRDFirst
	}
	return s.policy
}

// Version is the same for sets by which the same definitions are in force. It is empty if nothing is shared.
func (s *Set) Version() string {
	if s == nil {
		return ""
	}
	return s.version
}

// FullVersion is the same for sets of the same [Set.Version] whose webhooks are reached in the same way. A space doesn't switch because of
// a webhook.
func (s *Set) FullVersion() string {
	if s == nil {
		return ""
	}
	return s.fullVersion
}

// InForce returns which definition of a name is in force in the space. own says whether the space has one; if that is in force, CRD of the
// match is empty.
func (s *Set) InForce(name string, own bool) Match {
	var local *apiextensionsv1.CustomResourceDefinition
	if own {
		local = &apiextensionsv1.CustomResourceDefinition{}
	}
	return GetMatchingCRD(local, s.Of(name), s.Policy())
}

// SameOf reports whether by both sets the same definition of a name is in force, whatever the space has.
func (s *Set) SameOf(name string, other *Set) bool {
	one, two := s.Of(name), other.Of(name)
	if one == nil || two == nil {
		return one == two
	}
	return s.Policy() == other.Policy() && one.Forced == two.Forced && one.InRange == two.InRange && SameContent(one.CRD, two.CRD)
}

// Source has the current set of a space. It may be set while the space sleeps. It is safe for concurrent use.
type Source struct {
	mu      sync.Mutex
	set     *Set
	known   bool // it has been set
	changed chan struct{}

	// These are of a source that WithSynced has returned, which follows shares. Its set is made of the set of.
	shares *Source
	synced []*Shared
	of     *Set
}

// Await waits until it is known what the platform shares with the space, that is, until the source has been set. It returns ctx's error if
// that ends before.
func (s *Source) Await(ctx context.Context) error {
	if s.shares != nil {
		return s.shares.Await(ctx)
	}
	for {
		s.mu.Lock()
		known, changed := s.known, s.watch()
		s.mu.Unlock()
		if known {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// Watch returns the current set, and a channel that is closed when Set replaces it. Nothing has to be released.
func (s *Source) Watch() (*Set, <-chan struct{}) {
	if s.shares != nil {
		set, changed := s.shares.Watch()
		return s.with(set), changed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set, s.watch()
}

func (s *Source) watch() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Set replaces the set.
func (s *Source) Set(set *Set) {
	if s.shares != nil {
		s.shares.Set(set)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	same := s.known && s.set.FullVersion() == set.FullVersion()
	s.set, s.known = set, true
	if s.changed != nil && !same {
		close(s.changed)
		s.changed = nil
	}
}
