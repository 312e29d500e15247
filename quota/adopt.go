// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"maps"
)

// Adopt has the ledgers reserve what a space uses already, although nobody has reserved it: it is older than its ledger, or the quota names
// a resource that it didn't name before. That may be more than the limit. Then nobody gets more until less is used.
func (l *Ledgers) Adopt(ctx context.Context, tenant, space string) error {
	unlock, err := l.lock(ctx, tenant)
	if err != nil {
		return err
	}
	defer unlock()
	return l.adopt(ctx, tenant, space)
}

func (l *Ledgers) adopt(ctx context.Context, tenant, space string) error {
	a, err := l.account(ctx, Space(space))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	h, uses := Space(space), a.used
	for range maxDepth {
		var ledger *Ledger
		err := l.update(ctx, tenant, func(read *Ledger) bool {
			ledger = read
			share := read.Shares[h]
			more := Over(only(uses, read.Limit), share.Reserved)
			if len(more) == 0 {
				return false
			}
			share.Reserved, share.Lowering = total(share.Reserved), maps.Clone(share.Lowering)
			for name := range more {
				share.Reserved[name] = uses[name]
				delete(share.Lowering, name)
			}
			share.mark()
			read.Shares[h] = share
			return true
		})
		if err != nil {
			return err
		}
		if h.isTenant() {
			if _, err := l.settle(ctx, tenant, h, nil); err != nil {
				return err
			}
		}
		if ledger.Parent == "" {
			return nil
		}
		if reserved := ledger.reserved(); len(Over(only(reserved, ledger.Limit), ledger.Allotted)) > 0 {
			h, uses, tenant = Tenant(ledger.Tenant), reserved, ledger.Parent
			continue
		}
		return nil
	}
	return nil
}

// Lowering returns the spaces of a tenant whose shares are being lowered.
func (l *Ledgers) Lowering(ctx context.Context, tenant string) (spaces []string, err error) {
	ledger, err := l.ledger(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, h := range ledger.holders() {
		if !h.isTenant() && len(ledger.Shares[h].Lowering) > 0 {
			spaces = append(spaces, h.Name)
		}
	}
	return spaces, nil
}

// SameTree reports whether two tenants are in one tree, or may be.
func (l *Ledgers) SameTree(a, b string) bool {
	first, known := l.trees.root(a)
	second, alsoKnown := l.trees.root(b)
	return !known || !alsoKnown || first == second
}
