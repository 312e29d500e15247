// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/bounds"
)

// L1: the spaces of a tenant share what requests may hold, and what a space that ends never gave back is not the tenant's any more.
func TestHostileSpacesOfATenantAreBoundedTogether(t *testing.T) {
	tenant := &bounds.Tenant{}
	tenant.SetLimits(bounds.Limits{bounds.MemoryBytes: 100})
	a, b := tenant.Open(nil), tenant.Open(nil)
	if err := a.Take(bounds.MemoryBytes, 60); err != nil {
		t.Fatal(err)
	}
	err := b.Take(bounds.MemoryBytes, 41)
	if err == nil || !strings.Contains(err.Error(), "the tenant's limit memory-bytes is reached: 41 bytes asked, 60 of 100 in use") {
		t.Errorf("beyond the tenant's limit: %v", err)
	}
	if b.Used(bounds.MemoryBytes) != 0 {
		t.Errorf("refused, and %d bytes are in use", b.Used(bounds.MemoryBytes))
	}
	if err := b.Take(bounds.MemoryBytes, 40); err != nil {
		t.Error(err)
	}
	a.Close()
	if err := b.Take(bounds.MemoryBytes, 60); err != nil {
		t.Errorf("after the other space has ended: %v", err)
	}
	if err := b.Take(bounds.StoreBytes, 1000); err != nil {
		t.Errorf("of a quantity that is bounded for spaces alone: %v", err)
	}
}

// L1: without settings, a tenant may use what four spaces may.
func TestTenantsHaveTheLimitsOfFourSpaces(t *testing.T) {
	limits := bounds.TenantLimits(bounds.Limits{bounds.Watches: 7})
	for _, q := range bounds.OfTenants() {
		want := 4 * q.Bound().Default
		if q == bounds.Watches {
			want = 7
		}
		if limits.Of(q) != want || q.Bound().Scope != bounds.PerSpace {
			t.Errorf("%s: %d, not %d", q, limits.Of(q), want)
		}
	}
}
