// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilquota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

var (
	// ErrNotFound is returned for a ledger or a space's quota that doesn't exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned by a write of what somebody else has changed since it was read.
	ErrConflict = errors.New("conflict")
	// ErrForbidden is returned by a write that is up to another platform. That finishes what a ledger says.
	ErrForbidden = errors.New("forbidden")
)

// Holder is who has a share of a quota.
type Holder struct {
	Kind v1alpha1.QuotaHolderKind
	Name string
}

// Space returns the holder for a space.
func Space(name string) Holder { return Holder{v1alpha1.SpaceHolder, name} }

// Tenant returns the holder for a tenant.
func Tenant(name string) Holder { return Holder{v1alpha1.TenantHolder, name} }

// Ledger is the ledger of one tenant, as it was read.
type Ledger struct {
	Tenant, Parent string
	Limit          Amounts
	// Allotted is what the ledger of Parent has granted. A root has none.
	Allotted Amounts
	// Mark is that of the share of the last time that Allotted was lowered.
	Mark   string
	Shares map[Holder]Share
	// Version is the store's, of this ledger.
	Version string

	object *v1alpha1.QuotaLedger // of a [Host]
}

// Share is the share of one holder.
type Share struct {
	// Reserved is what nobody else can have.
	Reserved Amounts
	// Lowering has the resources of which less is to be reserved, and how much; nil if there are none.
	Lowering Amounts
	// Mark tells this time that the share is lowered from others. Less is reserved once the holder has the mark: then nobody writes any
	// more what was granted before.
	Mark string
}

// Granted is what the holder is to have.
func (s Share) Granted() Amounts {
	if len(s.Lowering) == 0 {
		return s.Reserved
	}
	granted := maps.Clone(s.Reserved)
	maps.Copy(granted, s.Lowering)
	return granted
}

// reserved is the sum of all shares.
func (l *Ledger) reserved() Amounts {
	sum := Amounts{}
	for _, share := range l.Shares {
		sum = utilquota.Add(sum, share.Reserved)
	}
	return sum
}

// capacity returns how much of each resource all shares may be together. A root doesn't limit resources that its limit doesn't name.
func (l *Ledger) capacity() Amounts {
	if l.Parent == "" {
		return l.Limit
	}
	return lower(l.Limit, l.Allotted)
}

// lacks returns how much is missing so that more can be reserved.
func (l *Ledger) lacks(more Amounts) Amounts {
	capacity, reserved := l.capacity(), l.reserved()
	return only(Over(only(total(reserved, more), more), capacity), capacity)
}

// holders returns all holders in a stable order.
func (l *Ledger) holders() []Holder {
	return slices.SortedFunc(maps.Keys(l.Shares), func(a, b Holder) int {
		if a.Kind != b.Kind {
			return compare(a.Kind, b.Kind)
		}
		return compare(a.Name, b.Name)
	})
}

func compare[T ~string](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}

// SpaceQuota is the ResourceQuota of a space on the host, as it was read.
type SpaceQuota struct {
	Space string
	// Hard is what the host enforces, and Used what it counts.
	Hard, Used Amounts
	// Mark is that of the share of the last time that Hard was lowered.
	Mark string
	// Version is the store's, of this quota.
	Version string

	names []corev1.ResourceName // of a [Host]: those that it limits
}

// Store reads and writes ledgers and spaces' quotas. A write fails with [ErrConflict] if somebody else has changed the object since it
// was read.
type Store interface {
	// Ledger returns the ledger of a tenant, or an error that wraps [ErrNotFound].
	Ledger(ctx context.Context, tenant string) (*Ledger, error)
	// UpdateLedger writes Allotted, Mark, and Shares.
	UpdateLedger(ctx context.Context, l *Ledger) error
	// SpaceQuota returns the quota of a space, or an error that wraps [ErrNotFound].
	SpaceQuota(ctx context.Context, space string) (*SpaceQuota, error)
	// UpdateSpaceQuota writes Hard and Mark. When it returns, the host enforces it. It creates the quota if Version is empty.
	UpdateSpaceQuota(ctx context.Context, q *SpaceQuota) error
}
