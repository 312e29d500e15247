// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"maps"
	"slices"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
)

// tenant is a tenant with spaces here, and what holds for all of them.
type tenant struct {
	bounds bounds.Tenant
	limits bounds.Limits // as bounds.TenantLimits makes them
	audit  *v1alpha1.Audit
	spaces map[string]enforced
}

// joinTenant adds a space to its tenant, or updates it. The caller holds mu.
func (s *sources) joinTenant(space string, to enforced) {
	if to.tenant == "" {
		return
	}
	t := s.tenants[to.tenant]
	if t == nil {
		t = &tenant{spaces: map[string]enforced{}}
		s.tenants[to.tenant] = t
	}
	t.spaces[space] = to
	t.settle(space)
}

// leaveTenant removes a space from its tenant. The caller holds mu.
func (s *sources) leaveTenant(space string) {
	name := s.set[space].tenant
	t := s.tenants[name]
	if t == nil {
		return
	}
	delete(t.spaces, space)
	if t.settle(""); len(t.spaces) == 0 {
		delete(s.tenants, name)
	}
}

// settle sets what holds for the tenant: what the space says that has changed, or else what another one says. A space that the operator
// has not got to yet says nothing.
func (t *tenant) settle(changed string) {
	var limits bounds.Limits
	var audit *v1alpha1.Audit
	for _, space := range append([]string{changed}, slices.Sorted(maps.Keys(t.spaces))...) {
		of := t.spaces[space]
		if len(limits) == 0 {
			limits = of.limits
		}
		if audit == nil {
			audit = of.audit
		}
	}
	t.bounds.SetLimits(limits)
	t.limits, t.audit = bounds.TenantLimits(limits), audit
}

// TenantLimits returns the limits of a tenant, for [gateway.NewLimiter]; nil if it has no space here.
func (s *Specs) TenantLimits(name string) bounds.Limits {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	if t := s.sources.tenants[name]; t != nil {
		return t.limits
	}
	return nil
}

// tenantOf returns what bounds the tenant of a space; nil if it has none.
func (s *Specs) tenantOf(space string) *bounds.Tenant {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	if t := s.sources.tenants[s.sources.set[space].tenant]; t != nil {
		return &t.bounds
	}
	return nil
}

// Audit returns what is recorded of the requests for a tenant, or for a space without one; nil for what the platform says.
func (s *Specs) Audit(tenant, space string) *v1alpha1.Audit {
	s.sources.mu.Lock()
	defer s.sources.mu.Unlock()
	if tenant == "" {
		return s.sources.set[space].audit
	}
	if t := s.sources.tenants[tenant]; t != nil {
		return t.audit
	}
	return nil
}
