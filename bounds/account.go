// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
)

// ErrExceeded is what every [*ExceededError] is.
var ErrExceeded = errors.New("a limit of the space or its tenant is reached")

// ExceededError says that a limit does not allow what was asked.
type ExceededError struct {
	Quantity Quantity
	// Asked is what was asked for, Used what was in use already.
	Asked, Used, Limit int64
	// Alone says that the request would pass the limit even if nothing else were in use: to try again is of no use.
	Alone bool
	// Of says whose limit it is.
	Of Owner
}

// Owner is whose a limit is. The zero value is one space.
type Owner string

// OfTenant is the limit of all spaces of a tenant together. OfUser is the part of a limit that one user may have, and OfVisitors that of all
// users of other tenants.
const (
	OfTenant   Owner = "tenant's"
	OfUser     Owner = "user's"
	OfVisitors Owner = "visitors'"
)

func (e *ExceededError) Error() string {
	b := e.Quantity.Bound()
	switch {
	case b.Scope == PerObject:
		return fmt.Sprintf("%d %s, at most %d are possible (limit %s): %s", e.Asked, b.Unit, e.Limit, b.Name, b.Remedy)
	case e.Alone:
		return fmt.Sprintf("the request needs more than the %s limit %s of %d %s: %s", cmp.Or(e.Of, "space's"), b.Name, e.Limit, b.Unit, b.Remedy)
	}
	return fmt.Sprintf("the %s limit %s is reached: %d %s asked, %d of %d in use: %s",
		cmp.Or(e.Of, "space's"), b.Name, e.Asked, b.Unit, e.Used, e.Limit, b.Remedy)
}

// Is makes it an [ErrExceeded].
func (e *ExceededError) Is(target error) bool { return target == ErrExceeded }

// Account is what one space uses now. It is safe for concurrent use. A nil account bounds and counts nothing: it is that of
// the host, and of tests.
type Account struct {
	limits  Limits
	tenant  *Tenant // nil if the space has none
	used    [quantities]atomic.Int64
	refused [quantities]atomic.Uint64
	// strained says that the process is short of memory.
	strained atomic.Bool
}

// NewAccount returns an account with nothing in use.
func NewAccount(l Limits) *Account { return &Account{limits: l} }

// Limit of a quantity.
func (a *Account) Limit(q Quantity) int64 {
	if a == nil {
		return 1<<63 - 1
	}
	return a.limits.Of(q)
}

// Take notes that n more are in use, or returns an [*ExceededError] and notes that. Give must follow a success.
func (a *Account) Take(q Quantity, n int64) error {
	if err := a.take(q, n); err != nil {
		return err
	}
	return nil
}

func (a *Account) take(q Quantity, n int64) *ExceededError {
	if a == nil {
		return nil
	}
	limit := a.Limit(q)
	if a.strained.Load() && strains(q) {
		limit = min(limit, 0)
	}
	if used := a.used[q].Add(n); used > limit {
		a.used[q].Add(-n)
		a.refused[q].Add(1)
		return &ExceededError{Quantity: q, Asked: n, Used: used - n, Limit: a.Limit(q)}
	}
	if err := a.tenant.check(q, n); err != nil {
		a.used[q].Add(-n)
		a.refused[q].Add(1)
		return err
	}
	return nil
}

// Add notes that n more are in use, whatever the limit: of what must not be refused. Give must follow.
func (a *Account) Add(q Quantity, n int64) {
	if a != nil {
		a.used[q].Add(n)
	}
}

// TakeBeyond notes that n more are in use although that passes the limit, unless it is passed already: of what could
// never be taken otherwise, one at a time. Give must follow a success.
func (a *Account) TakeBeyond(q Quantity, n int64) bool {
	if a == nil {
		return true
	}
	for {
		used := a.used[q].Load()
		if used > a.Limit(q) {
			return false
		}
		if a.used[q].CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Exceeds returns an [*ExceededError], and notes that, if less than n are left of a quantity whose use is measured and not
// taken.
func (a *Account) Exceeds(q Quantity, n int64) error {
	if a == nil {
		return nil
	}
	used, limit := a.used[q].Load(), a.Limit(q)
	if used+n <= limit {
		return nil
	}
	a.refused[q].Add(1)
	return &ExceededError{Quantity: q, Asked: n, Used: used, Limit: limit}
}

// Strain has the account refuse all further memory, until it is called with false: the process is short of memory, and
// this space uses most of what is accounted.
func (a *Account) Strain(on bool) {
	if a != nil {
		a.strained.Store(on)
	}
}

// strains says whether a quantity is refused to an account under strain.
func strains(q Quantity) bool { return q == MemoryBytes || q == Watches }

// Memory is how many bytes are in use of all quantities that lie in the process's memory.
func (a *Account) Memory() int64 { return a.Used(MemoryBytes) + a.Used(WatchBytes) }

// IdleWatch is about how many of [MemoryBytes] a watch takes, with its request, of which nothing waits.
const IdleWatch = 48 << 10

// Give notes that n less are in use.
func (a *Account) Give(q Quantity, n int64) {
	if a != nil {
		a.used[q].Add(-n)
	}
}

// Set notes how much of a quantity is in use, where that is measured and not taken.
func (a *Account) Set(q Quantity, n int64) {
	if a != nil {
		a.used[q].Store(n)
	}
}

// Refuse notes that something was refused for a limit, where that is found otherwise than by Take.
func (a *Account) Refuse(q Quantity) {
	if a != nil {
		a.refused[q].Add(1)
	}
}

// Used is how much of a quantity is in use.
func (a *Account) Used(q Quantity) int64 {
	if a == nil {
		return 0
	}
	return a.used[q].Load()
}

// Usage is what a space uses of a quantity.
type Usage struct {
	Quantity    Quantity
	Used, Limit int64
	// Refused counts what was refused since the account was made.
	Refused uint64
}

// Usage of all quantities of a space, in the order of [Table].
func (a *Account) Usage() []Usage {
	if a == nil {
		return nil
	}
	var list []Usage
	for q := range quantities {
		if q.Bound().Scope == PerSpace {
			list = append(list, Usage{q, a.used[q].Load(), a.Limit(q), a.refused[q].Load()})
		}
	}
	return list
}
