// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import "github.com/berth-dev/berth/bounds"

// tenant is a tenant with spaces here, and what they may use together.
type tenant struct {
	bounds bounds.Tenant
	limits bounds.Limits // as bounds.TenantLimits makes them
	spaces int
}

// joinTenant adds a space to its tenant, whose limits are those that came last. The caller holds mu.
func (s *sources) joinTenant(to *enforced) {
	if to.tenant == "" {
		return
	}
	t := s.tenants[to.tenant]
	if t == nil {
		t = &tenant{}
		s.tenants[to.tenant] = t
	}
	t.spaces++
	t.bounds.SetLimits(to.limits)
	t.limits = bounds.TenantLimits(to.limits)
}

// leaveTenant removes a space from its tenant. The caller holds mu.
func (s *sources) leaveTenant(space string) {
	name := s.set[space].tenant
	t := s.tenants[name]
	if t == nil {
		return
	}
	if t.spaces--; t.spaces == 0 {
		delete(s.tenants, name)
	}
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
