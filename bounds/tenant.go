// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// TenantSpaces is how many spaces at their limits a tenant may have, of a quantity that is bounded for tenants, too.
const TenantSpaces = 4

// OfTenants are the quantities that are bounded for all spaces of a tenant together, in the order of [Table]: what requests use at once.
func OfTenants() []Quantity {
	return []Quantity{MemoryBytes, Watches, RequestsReading, RequestsWriting, RequestsLongRunning, RequestRate}
}

// TenantLimits returns the limits of a tenant, of which own are those that differ from the defaults. Quantities that aren't bounded for
// tenants have no limit.
func TenantLimits(own Limits) Limits {
	limits := Limits{}
	for q := range quantities {
		limits[q] = math.MaxInt64
	}
	for _, q := range OfTenants() {
		limits[q] = q.Bound().Default * TenantSpaces
		if limit, ok := own[q]; ok {
			limits[q] = limit
		}
	}
	return limits
}

// Tenant has the accounts of a tenant's spaces in this process, and bounds what they use together. The zero value has the default limits.
// It is safe for concurrent use.
type Tenant struct {
	limits atomic.Pointer[Limits]

	mu       sync.Mutex
	accounts atomic.Pointer[[]*Account] // is replaced, and never changed
}

// SetLimits sets the limits that differ from the defaults. own must not be changed afterwards.
func (t *Tenant) SetLimits(own Limits) {
	limits := TenantLimits(own)
	t.limits.Store(&limits)
}

// Limit of a quantity.
func (t *Tenant) Limit(q Quantity) int64 {
	if limits := t.limits.Load(); limits != nil {
		return limits.Of(q)
	}
	return TenantLimits(nil).Of(q)
}

// Open returns an account of one of the tenant's spaces, with nothing in use. [Account.Close] must follow. A nil tenant bounds nothing.
func (t *Tenant) Open(l Limits) *Account {
	a := NewAccount(l)
	if t == nil {
		return a
	}
	a.tenant = t
	t.change(func(all []*Account) []*Account { return append(all, a) })
	return a
}

// Close ends an account: what is still in use of it is no longer the tenant's.
func (a *Account) Close() {
	if a != nil && a.tenant != nil {
		a.tenant.change(func(all []*Account) []*Account {
			return slices.DeleteFunc(all, func(other *Account) bool { return other == a })
		})
	}
}

func (t *Tenant) change(edit func([]*Account) []*Account) {
	t.mu.Lock()
	defer t.mu.Unlock()
	edited := edit(slices.Clone(t.all()))
	t.accounts.Store(&edited)
}

func (t *Tenant) all() []*Account {
	if accounts := t.accounts.Load(); accounts != nil {
		return *accounts
	}
	return nil
}

// Used is how much of a quantity the tenant's spaces use together.
func (t *Tenant) Used(q Quantity) (used int64) {
	for _, a := range t.all() {
		used += a.used[q].Load()
	}
	return used
}

// check returns an error if the spaces use more than the tenant may, with n that one of them has just taken.
func (t *Tenant) check(q Quantity, n int64) *ExceededError {
	if t == nil || q != MemoryBytes && q != Watches { // requests are counted where they arrive
		return nil
	}
	if used, limit := t.Used(q), t.Limit(q); used > limit {
		return &ExceededError{Quantity: q, Asked: n, Used: used - n, Limit: limit, Of: OfTenant, Alone: n > limit}
	}
	return nil
}
