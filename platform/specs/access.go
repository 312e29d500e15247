// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
)

// Publications resolves Publications for spaces.
type Publications interface {
	// Published returns the objects of the named Publications, as copies for a space of a tenant. known is false while not all of
	// them could be read, for example because a watch has not synced: then the copies in the space stay. Published must return at
	// once, and must not call a [Specs]. It may be called concurrently. What it returns must not be changed afterwards.
	Published(space, tenant string, publications []string) (objects []access.Published, known bool)
}

// noPublications is used while there is no other.
type noPublications struct{}

// Published implements [Publications].
func (noPublications) Published(_, _ string, publications []string) ([]access.Published, bool) {
	return nil, len(publications) == 0
}

// enforced is the part of a spec that a space enforces, and follows without a restart.
type enforced struct {
	tenant       string
	access       v1alpha1.Access
	namespaces   v1alpha1.Namespaces
	publications []string
	limits       bounds.Limits // of the tenant
	audit        *v1alpha1.Audit
}

func enforcedOf(spec *v1alpha1.SpaceSpec) enforced {
	return enforced{tenant: spec.TenantName, access: spec.Access, namespaces: spec.Namespaces, publications: spec.Publications, audit: auditOf(spec)}
}

// auditOf returns what is recorded of requests; nil if the spec does not say.
func auditOf(spec *v1alpha1.SpaceSpec) *v1alpha1.Audit {
	if equality.Semantic.DeepEqual(spec.Audit, v1alpha1.Audit{}) {
		return nil
	}
	return spec.Audit.DeepCopy()
}

// WithoutEnforced returns a spec without the part that a space follows without a restart: tenantName, access, namespaces,
// publications, tenantLimits, and audit.
func WithoutEnforced(spec v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	spec.TenantName, spec.Access, spec.Namespaces, spec.Publications = "", v1alpha1.Access{}, v1alpha1.Namespaces{}, nil
	spec.TenantLimits, spec.Audit = nil, v1alpha1.Audit{}
	return spec
}

// WithEnforced returns a spec with that part of another one.
func WithEnforced(spec v1alpha1.SpaceSpec, other *v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	other = other.DeepCopy()
	spec.TenantName, spec.Access, spec.Namespaces, spec.Publications = other.TenantName, other.Access, other.Namespaces, other.Publications
	spec.TenantLimits, spec.Audit = other.TenantLimits, other.Audit
	return spec
}

// sources are what spaces enforce, by name of the space. A space keeps its source as long as it exists, whether it sleeps or not.
type sources struct {
	publications Publications
	granted      func(space, tenant string) []*access.Set // nil if the platform grants nothing

	mu sync.Mutex // held while a state is made and set, so that a later one is not replaced by an earlier one
	of map[string]*access.Source
	// set are what the states were made of.
	set     map[string]enforced
	tenants map[string]*tenant
}

func newSources() *sources {
	return &sources{publications: noPublications{}, of: map[string]*access.Source{}, set: map[string]enforced{}, tenants: map[string]*tenant{}}
}

// source returns the source of a space. The caller holds mu.
func (s *sources) source(space string) *access.Source {
	source := s.of[space]
	if source == nil {
		source = &access.Source{}
		s.of[space] = source
	}
	return source
}

func (s *sources) get(space string) *access.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source(space)
}

func (s *sources) update(space string, to enforced) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.set[space].tenant != to.tenant {
		s.leaveTenant(space)
	}
	s.joinTenant(space, to)
	s.set[space] = to
	s.resolve(space)
}

// resolve sets the state of a space. The caller holds mu.
func (s *sources) resolve(space string) {
	of := s.set[space]
	objects, known := s.publications.Published(space, of.tenant, of.publications)
	s.source(space).Set(&access.State{
		Space: space, Tenant: of.tenant, Access: of.access, Namespaces: of.namespaces, Published: objects, PublishedUnknown: !known,
		Granted: s.grants(space, of.tenant),
	})
}

func (s *sources) grants(space, tenant string) []*access.Set {
	if s.granted == nil {
		return nil
	}
	return s.granted(space, tenant)
}

func (s *sources) remove(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaveTenant(space)
	delete(s.of, space)
	delete(s.set, space)
}

// Access returns what a space enforces. It is the same source until [Specs.Remove], and follows [Specs.Set].
func (s *Specs) Access(space string) *access.Source { return s.sources.get(space) }

// HasHostAccount reports whether a ServiceAccount of the host owns a space now; see [access.Rules.HasHostAccount]. Anybody may ask
// about any space: it keeps nothing of those that don't exist.
func (s *Specs) HasHostAccount(space, name string) bool {
	s.sources.mu.Lock()
	source := s.sources.of[space]
	s.sources.mu.Unlock()
	return source != nil && source.Rules().HasHostAccount(name)
}

// SetGranted sets what says which rights the platform gives in a space to users whom it knows, and asks it for all spaces. granted must
// return at once, with sets that spaces share, and must not call a [Specs]. What it returns must not be changed afterwards.
func (s *Specs) SetGranted(granted func(space, tenant string) []*access.Set) {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	s.sources.granted = granted
	for space, of := range s.sources.set {
		s.sources.source(space).SetGranted(s.sources.grants(space, of.tenant))
	}
}

// SetPublications sets what resolves spec.publications, and resolves those of all spaces. Until then, copies in spaces stay as they
// are.
func (s *Specs) SetPublications(p Publications) {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	s.sources.publications = p
	for space := range s.sources.set {
		s.sources.resolve(space)
	}
}

// PublicationsChanged resolves the publications of a space again. It does nothing for a space that is not set.
func (s *Specs) PublicationsChanged(space string) {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	if _, ok := s.sources.set[space]; ok {
		s.sources.resolve(space)
	}
}
