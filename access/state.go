// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// State is what a space has to enforce. It is immutable once it is set in a [Source], with all that it points to.
type State struct {
	// Space is the name of the space.
	Space string
	// Tenant is the name of the space's tenant. It is in the names and labels of objects that Berth keeps in the space. If it
	// is empty, the name of the space stands there.
	Tenant string
	// Access says who owns the space, and what the owners may do in it.
	Access v1alpha1.Access
	// Namespaces is what the namespaces of the space have.
	Namespaces v1alpha1.Namespaces
	// Published are the objects that are copied to the space.
	Published []Published
	// Granted are the rights that the platform gives in this space to users whom it knows. Spaces share the sets.
	Granted []*Set `json:",omitempty"`
	// PublishedUnknown says that Published may lack objects, because not all of them could be read yet. Copies in the space that are
	// not in Published then stay.
	PublishedUnknown bool
}

// Published is an object of the host that is copied to a space.
type Published struct {
	// Object is the copy: all fields of the publication are set, and it has no status. Its namespace, if its kind is in
	// namespaces, is that of the source.
	Object *unstructured.Unstructured
	// Publication is the name of the Publication.
	Publication string
	// Namespaces says in which namespaces the copies are, if the kind is in namespaces.
	Namespaces v1alpha1.PublicationNamespaces
}

// TenantName returns the name that stands for the tenant in names and labels.
func (s *State) TenantName() string {
	if s.Tenant != "" {
		return s.Tenant
	}
	return s.Space
}

// Source holds the current state of one space, whether the space sleeps or not. The zero value, and nil, hold the state of a
// space that enforces nothing. It is safe for concurrent use.
type Source struct {
	mu      sync.Mutex
	state   *State
	rules   *Rules // of state; nil until somebody asks
	changed chan struct{}

	tenantAccesses      *Set // of the TenantAccess objects in the space
	knowsTenantAccesses bool // tenantAccesses are known, which they are while the space is awake
	regrant             chan struct{}
}

// Rules returns the rules of the current state. It makes them once for each state.
func (s *Source) Rules() *Rules {
	if s == nil {
		return NewRules(&State{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules == nil {
		if s.state == nil {
			s.state = &State{}
		}
		s.rules = NewRules(s.state)
	}
	return s.rules
}

// Get returns the current state, which is never nil.
func (s *Source) Get() *State {
	state, _ := s.Watch()
	return state
}

// Watch returns the current state, and a channel that is closed when Set replaces it. Nothing has to be released.
func (s *Source) Watch() (*State, <-chan struct{}) {
	if s == nil {
		return &State{}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == nil {
		s.state = &State{}
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.state, s.changed
}

// Set replaces the state, unless it says the same. The caller must not change it afterwards. Nil stands for the state of a space that
// enforces nothing.
func (s *Source) Set(state *State) {
	if state == nil {
		state = &State{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil && same(s.state, state) {
		return
	}
	s.state, s.rules = state, nil
	notify(&s.changed)
}

// same reports whether two states say the same.
func same(a, b *State) bool {
	if !SameGrants(a.Granted, b.Granted) {
		return false
	}
	x, y := *a, *b
	x.Granted, y.Granted = nil, nil
	return equality.Semantic.DeepEqual(&x, &y)
}

// SetGranted replaces what the platform grants, unless it is the same. The rest of the state stays. The caller must not change it afterwards.
func (s *Source) SetGranted(granted []*Set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := State{}
	if s.state != nil {
		next = *s.state
	}
	if SameGrants(next.Granted, granted) {
		return
	}
	next.Granted = granted
	s.state, s.rules = &next, nil
	notify(&s.changed)
}

// SetTenantAccesses sets what TenantAccess objects of the space grant (Z5), until ForgetTenantAccesses, unless it is the same. The caller
// must not change it afterwards.
func (s *Source) SetTenantAccesses(grants []Grant) {
	set := NewSet(grants)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.knowsTenantAccesses && s.tenantAccesses.Equal(set) {
		return
	}
	s.tenantAccesses, s.knowsTenantAccesses = set, true
	notify(&s.regrant)
}

// ForgetTenantAccesses says that it isn't known any more what TenantAccess objects grant, because the space goes to sleep.
func (s *Source) ForgetTenantAccesses() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenantAccesses, s.knowsTenantAccesses = nil, false
}

// TenantAccesses returns what TenantAccess objects grant, and whether that is known, which it is while the space is awake.
func (s *Source) TenantAccesses() (grants *Set, known bool) {
	if s == nil {
		return nil, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tenantAccesses, s.knowsTenantAccesses
}

// grantsFor returns the grants for a client that hold, as far as they are known: those of the platform, and, for a user of another tenant,
// those of TenantAccess objects.
func (s *Source) grantsFor(c Client, visitor bool, now time.Time) []*Grant {
	own := GrantsFor(s.Get().Granted, c, now)
	if visitor {
		granted, _ := s.TenantAccesses()
		own = append(own, granted.For(c, now)...)
	}
	return own
}

// TenantAccessesChanged returns a channel that is closed when SetTenantAccesses changes something. Nothing has to be released.
func (s *Source) TenantAccessesChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.regrant == nil {
		s.regrant = make(chan struct{})
	}
	return s.regrant
}

func notify(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}
