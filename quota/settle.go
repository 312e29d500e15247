// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"

	utilquota "k8s.io/apiserver/pkg/quota/v1"
)

// account is what a holder has of its share, and uses.
type account struct {
	has, used Amounts
	mark      string
	write     func(ctx context.Context, has Amounts, mark string) error
}

// account reads the account of a holder. It is read before the ledger with the holder's share: whoever writes it again as the ledger
// said before then meets a conflict.
func (l *Ledgers) account(ctx context.Context, h Holder) (*account, error) {
	if h.isTenant() {
		ledger, err := l.ledger(ctx, h.Name)
		if err != nil {
			return nil, err
		}
		return &account{has: ledger.Allotted, used: ledger.reserved(), mark: ledger.Mark, write: func(ctx context.Context, has Amounts, mark string) error {
			ledger.Allotted, ledger.Mark = has, mark
			return l.store.UpdateLedger(ctx, ledger)
		}}, nil
	}
	quota, err := l.store.SpaceQuota(ctx, h.Name)
	if err != nil {
		return nil, err
	}
	return l.spaceAccount(quota), nil
}

func (l *Ledgers) spaceAccount(quota *SpaceQuota) *account {
	return &account{has: quota.Hard, used: quota.Used, mark: quota.Mark, write: func(ctx context.Context, has Amounts, mark string) error {
		quota.Hard, quota.Mark = has, mark
		return l.store.UpdateSpaceQuota(ctx, quota)
	}}
}

// settle gives a holder what the ledger grants it, and then has the ledger reserve no more than that. It returns what the holder has. It
// creates the quota of a space only if it is given the ceiling of the space, which may be empty, but not nil.
func (l *Ledgers) settle(ctx context.Context, tenant string, h Holder, ceiling Amounts) (Amounts, error) {
	for range maxTries {
		a, err := l.account(ctx, h)
		if errors.Is(err, ErrNotFound) && ceiling != nil {
			a, err = l.spaceAccount(&SpaceQuota{Space: h.Name}), nil
		}
		if err != nil {
			return nil, err
		}
		has, err := l.settleOnce(ctx, tenant, h, a, ceiling)
		if !errors.Is(err, ErrConflict) {
			return has, err
		}
	}
	return nil, fmt.Errorf("give %s %s what the quota ledger of tenant %s grants: %w: others change it all the time", h.Kind, h.Name, tenant, ErrConflict)
}

// Settle makes sure that the host enforces the share of a space, if it has one, and that the ledger reserves what the space uses, and no
// more than its share.
func (l *Ledgers) Settle(ctx context.Context, tenant, space string) error {
	unlock, err := l.lock(ctx, tenant)
	if err != nil {
		return err
	}
	defer unlock()
	if err := l.adopt(ctx, tenant, space); err != nil {
		return err
	}
	if _, err = l.settle(ctx, tenant, Space(space), nil); errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func (l *Ledgers) settleOnce(ctx context.Context, tenant string, h Holder, a *account, ceiling Amounts) (Amounts, error) {
	ledger, err := l.ledger(ctx, tenant)
	if err != nil {
		return nil, err
	}
	share, there := ledger.Shares[h]
	if !there { // somebody has removed it: nothing is granted, and what is used stays
		share.Reserved = nil
	}
	want := l.wanted(h, a, ledger, share, ceiling)
	mark := a.mark
	if len(share.Lowering) > 0 {
		mark = share.Mark
	}
	if mark != a.mark || !sameNames(want, a.has) || !utilquota.Equals(want, a.has) {
		if err := a.write(ctx, want, mark); err != nil {
			return nil, err
		}
		return nil, ErrConflict // once more, from what was written
	}
	if len(share.Lowering) == 0 {
		return want, nil
	}
	reserved := total(share.Reserved)
	for name := range share.Lowering {
		amount := want[name]
		if used := a.used[name]; used.Cmp(amount) > 0 { // the host let it be used while its quota was being lowered
			amount = used
		}
		if amount.Cmp(reserved[name]) < 0 {
			reserved[name] = amount
		}
	}
	ledger.Shares[h] = Share{Reserved: reserved}
	return want, l.store.UpdateLedger(ctx, ledger)
}

// wanted is what a holder is to have: what the ledger grants, but not less than the holder uses, if it has it.
func (l *Ledgers) wanted(h Holder, a *account, ledger *Ledger, share Share, ceiling Amounts) Amounts {
	want := maps.Clone(a.has) // the host's quota may limit more
	if want == nil || ceiling != nil {
		want = Amounts{}
	}
	for _, names := range []Amounts{ledger.Limit, share.Reserved, ceiling} {
		for name, like := range names {
			if amount := share.Granted()[name]; !amount.IsZero() {
				want[name] = amount
			} else {
				want[name] = *zero(like)
			}
		}
	}
	lowered := Over(a.has, want)
	if len(lowered) == 0 {
		return want
	}
	used := a.used
	if !h.isTenant() {
		if held := l.gates.Lower(h.Name, only(want, lowered)); held != nil {
			used = utilquota.Max(used, held)
		}
	}
	for name := range lowered {
		use := used[name]
		if amount := want[name]; use.Cmp(amount) > 0 {
			if has := a.has[name]; use.Cmp(has) > 0 { // it was lowered by somebody else
				use = has
			}
			want[name] = use
		}
	}
	return want
}

func sameNames(a, b Amounts) bool {
	if len(a) != len(b) {
		return false
	}
	for name := range a {
		if _, ok := b[name]; !ok {
			return false
		}
	}
	return true
}
