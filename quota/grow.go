// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/util/uuid"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// maxTries limits how often something is tried again because somebody else has changed an object.
const maxTries = 100

// Ledgers change the ledgers of tenants. They are safe for concurrent use. Any number of processes may change the same ledgers.
type Ledgers struct {
	store Store
	gates Gates
	trees trees
	idle  idleShares
}

// Gates know what the spaces of this process use that the host doesn't count yet. They are called while the ledgers of the space's tree
// are locked.
type Gates interface {
	// Lower has a space use no more of these resources than that, as far as it doesn't yet, and returns what it uses of all resources.
	// It returns nil if the space doesn't run in this process.
	Lower(space string, to Amounts) (used Amounts)
	// Raise tells what the host lets a space use.
	Raise(space string, hard Amounts)
}

// New returns ledgers.
func New(store Store, gates Gates, clock clock.PassiveClock) *Ledgers {
	return &Ledgers{store: store, gates: gates, idle: idleShares{clock: clock}}
}

// Limit returns the quota of a tenant, which is within those of all tenants above.
func (l *Ledgers) Limit(ctx context.Context, tenant string) (Amounts, error) {
	ledger, err := l.ledger(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return ledger.Limit, nil
}

// Request is what a space asks for.
type Request struct {
	Space, Tenant string
	// Ceiling is the quota of the space itself, within that of its tenant. Resources that it doesn't name are limited by the tenant's
	// only.
	Ceiling Amounts
	// Has is what the space uses, or may use in a moment. More is what it needs in addition.
	Has, More Amounts
	// OnHost says that the space has at least what the host counts.
	OnHost bool

	anew bool // the space has no quota on the host yet
}

// Grow gives a space a share that is enough for what it has and needs more, and makes sure that the host enforces the share. It returns
// what the host enforces. If a quota doesn't allow that, the error wraps [Exceeded], and the share is at least what it was.
func (l *Ledgers) Grow(ctx context.Context, r Request) (hard Amounts, err error) {
	unlock, err := l.lock(ctx, r.Tenant)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if r.OnHost {
		switch counted, err := l.store.SpaceQuota(ctx, r.Space); {
		case err == nil:
			r.Has = utilquota.Max(r.Has, counted.Used)
		case !errors.Is(err, ErrNotFound):
			return nil, err
		default:
			r.anew = true
		}
	}
	if err := l.fit(ctx, &r); err != nil {
		return nil, err
	}
	failure := l.raiseSpace(ctx, &r)
	if failure != nil && !IsExceeded(failure) {
		return nil, failure
	}
	ceiling := r.Ceiling
	if ceiling == nil {
		ceiling = Amounts{}
	}
	hard, err = l.settle(ctx, r.Tenant, Space(r.Space), ceiling)
	if errors.Is(err, ErrNotFound) { // the space has no namespace, because it is new or was deleted meanwhile
		err = errors.Join(err, l.update(ctx, r.Tenant, func(ledger *Ledger) bool {
			_, there := ledger.Shares[Space(r.Space)]
			delete(ledger.Shares, Space(r.Space))
			return there
		}))
	}
	if err == nil {
		l.gates.Raise(r.Space, hard)
	}
	l.Freed(r.Tenant, r.Space) // of what it has got, or those above, it may leave some
	return hard, errors.Join(failure, err)
}

// raiseSpace raises the share of a space, if its ceiling allows that. A space that asks for more of some resources is not refused because of
// others, of which it may have too much.
func (l *Ledgers) raiseSpace(ctx context.Context, r *Request) error {
	need := total(r.Has, r.More)
	if asked := withoutZeros(r.More); asked != nil {
		need = only(need, asked)
	}
	past := Over(only(need, r.Ceiling), r.Ceiling)
	c := change{to: without(need, past), most: r.Ceiling, has: r.Has, more: r.More}
	if asked := only(r.More, past); len(asked) > 0 {
		return l.pastCeiling(ctx, r, asked, c)
	}
	err := l.raise(ctx, r.Tenant, Space(r.Space), c, true)
	above := (*Exceeded)(nil)
	if !errors.As(err, &above) || above.Tenant == r.Tenant {
		return err
	}
	// What other tenants use is not for this one to know.
	ledger, err := l.ledger(ctx, r.Tenant)
	if err != nil {
		return err
	}
	own := ledger.exceeded(Space(r.Space), above.Limited, c)
	own.Above = true
	return own
}

// pastCeiling returns the error that a space asks for more than its own quota allows. If that of the tenant allows no more than that, the error
// names the tenant.
func (l *Ledgers) pastCeiling(ctx context.Context, r *Request, asked Amounts, c change) error {
	ledger, err := l.ledger(ctx, r.Tenant)
	if err != nil {
		return err
	}
	if len(Over(only(ledger.Limit, asked), r.Ceiling)) == 0 && len(only(ledger.Limit, asked)) == len(asked) {
		return ledger.exceeded(Space(r.Space), asked, c)
	}
	return &Exceeded{Tenant: r.Tenant, Space: r.Space, Requested: asked, Used: filled(r.Has, asked), Limited: only(r.Ceiling, asked)}
}

// fit makes the share of a space fit a ceiling that was changed, and drops resources that nothing limits any more.
func (l *Ledgers) fit(ctx context.Context, r *Request) error {
	return l.update(ctx, r.Tenant, func(ledger *Ledger) bool {
		h := Space(r.Space)
		share, changed := ledger.Shares[h], false
		share.Reserved, share.Lowering = maps.Clone(share.Reserved), maps.Clone(share.Lowering)
		if share.Reserved == nil {
			share.Reserved = Amounts{}
		}
		for name := range share.Reserved {
			_, limited := ledger.Limit[name]
			if _, own := r.Ceiling[name]; !limited && !own {
				delete(share.Reserved, name)
				delete(share.Lowering, name)
				changed = true
			}
		}
		for name, most := range r.Ceiling {
			_, limited := ledger.Limit[name]
			reserved := share.Reserved[name]
			switch above := reserved.Cmp(most); {
			case above < 0 && !limited: // nobody else limits it, so the space has all of it
				share.Reserved[name] = most
				delete(share.Lowering, name)
				changed = true
			case above > 0:
				if to, is := share.Lowering[name]; is && to.Cmp(most) <= 0 {
					continue
				}
				if share.Lowering == nil {
					share.Lowering = Amounts{}
				}
				share.Lowering[name] = most
				changed = true
			}
		}
		share.mark()
		if len(share.Reserved) > 0 && r.anew { // whoever was about to free what an earlier space of the name left meets a conflict
			share.Mark = string(uuid.NewUUID())
			changed = true
		}
		ledger.Shares[h] = share
		return changed
	})
}

// change is a change of a share.
type change struct {
	// to is what the share is to have, at least.
	to Amounts
	// most is what it may have, as far as it is limited.
	most Amounts
	// has is what its holder uses, and more what is asked for in addition, for messages.
	has, more Amounts
}

// raise reserves so much for a holder. It doesn't give it to the holder yet. If there isn't enough, it asks the ledger above, and, if
// it may reclaim, takes what other holders have and don't use.
func (l *Ledgers) raise(ctx context.Context, tenant string, h Holder, c change, reclaim bool) error {
	for range maxTries {
		ledger, err := l.ledger(ctx, tenant)
		if err != nil {
			return err
		}
		share := ledger.Shares[h]
		to := ledger.limited(c.to, c.most)
		more := Over(to, share.Reserved)
		lacks := ledger.lacks(more)
		if len(lacks) == 0 {
			if !ledger.reserve(h, to, more, c.most) {
				return nil
			}
			if err := l.store.UpdateLedger(ctx, ledger); err == nil || !errors.Is(err, ErrConflict) {
				return err
			}
			continue
		}
		freed, err := l.obtain(ctx, ledger, h, lacks, more, c, reclaim)
		if err != nil {
			return err
		}
		if !freed {
			return ledger.exceeded(h, lacks, c)
		}
	}
	return fmt.Errorf("change the quota ledger of tenant %s: %w: others change it all the time", tenant, ErrConflict)
}

// obtain makes some of what a ledger lacks available. It reports whether anything has changed.
func (l *Ledgers) obtain(ctx context.Context, ledger *Ledger, h Holder, lacks, more Amounts, c change, reclaim bool) (bool, error) {
	reserved := ledger.reserved()
	above := change{
		to: lower(only(total(reserved, more), lacks), ledger.Limit), most: ledger.Limit,
		has: total(utilquota.SubtractWithNonNegativeResult(reserved, ledger.Shares[h].Reserved), c.has), more: c.more,
	}
	ask := func(reclaim bool) error { return l.raiseTenant(ctx, ledger, above, reclaim) }
	asks := ledger.Parent != "" && len(Over(above.to, ledger.Allotted)) > 0
	if asks {
		if err := ask(false); err == nil || !IsExceeded(err) {
			return err == nil, err
		}
	}
	if !reclaim {
		return false, nil
	}
	if freed, err := l.reclaim(ctx, ledger.Tenant, h, lacks); freed || err != nil {
		return freed, err
	}
	if !asks {
		return false, nil
	}
	return true, ask(true)
}

// raiseTenant has the ledger above grant a ledger so much.
func (l *Ledgers) raiseTenant(ctx context.Context, ledger *Ledger, c change, reclaim bool) error {
	h := Tenant(ledger.Tenant)
	if err := l.raise(ctx, ledger.Parent, h, c, reclaim); err != nil {
		return err
	}
	_, err := l.settle(ctx, ledger.Parent, h, nil)
	return err
}

// limited returns the amounts of resources that a ledger limits, or a holder's own quota does.
func (l *Ledger) limited(amounts, most Amounts) Amounts {
	return utilquota.Max(only(amounts, l.Limit), only(amounts, most))
}

// reserve reserves amounts for a holder, of which more is in addition to what is reserved already, and half of what is left then, so
// that the holder need not ask each time. It reports whether anything has changed.
func (l *Ledger) reserve(h Holder, to, more, most Amounts) bool {
	share := l.Shares[h]
	reserved, lowering, changed := total(share.Reserved), maps.Clone(share.Lowering), false
	left := Over(l.capacity(), l.reserved())
	for name, amount := range to {
		if lowered, is := lowering[name]; is && lowered.Cmp(amount) < 0 {
			delete(lowering, name)
			changed = true
		}
		need, more := amount, more[name]
		if more.Sign() <= 0 {
			continue
		}
		if rest := left[name].DeepCopy(); rest.Cmp(more) > 0 {
			rest.Sub(more)
			need = need.DeepCopy()
			need.Add(half(name, rest))
		}
		if limit, is := most[name]; is && need.Cmp(limit) > 0 {
			need = limit
		}
		reserved[name] = need
		delete(lowering, name)
		changed = true
	}
	if _, there := l.Shares[h]; !there || changed {
		share = Share{Reserved: reserved, Lowering: lowering}
		share.mark()
		l.Shares[h] = share
		return true
	}
	return false
}

// mark gives a share a new mark if it is being lowered.
func (s *Share) mark() {
	if s.Mark = ""; len(s.Lowering) > 0 {
		s.Mark = string(uuid.NewUUID())
	}
}

// exceeded returns the error that a ledger lacks what is asked for.
func (l *Ledger) exceeded(h Holder, lacks Amounts, c change) *Exceeded {
	used := total(utilquota.SubtractWithNonNegativeResult(l.reserved(), l.Shares[h].Reserved), c.has)
	names := only(c.more, lacks)
	if len(names) == 0 { // it has already too much
		names = lacks
	}
	return &Exceeded{Tenant: l.Tenant, Requested: only(c.more, names), Used: filled(used, names), Limited: only(l.Limit, names)}
}

// filled returns the amounts of the resources that names has, with zeros.
func filled(a, names Amounts) Amounts {
	all := Amounts{}
	for name, like := range names {
		amount, ok := a[name]
		if !ok {
			amount.Format = like.Format
		}
		all[name] = amount
	}
	return all
}

// update changes a ledger, unless change reports that there is nothing to change.
func (l *Ledgers) update(ctx context.Context, tenant string, change func(*Ledger) bool) error {
	for range maxTries {
		ledger, err := l.ledger(ctx, tenant)
		if err != nil {
			return err
		}
		if !change(ledger) {
			return nil
		}
		if err := l.store.UpdateLedger(ctx, ledger); err == nil || !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("change the quota ledger of tenant %s: %w: others change it all the time", tenant, ErrConflict)
}

// Remove frees the share of a space or tenant that doesn't exist any more, and has nothing on the host.
func (l *Ledgers) Remove(ctx context.Context, tenant string, h Holder) error {
	unlock, err := l.lock(ctx, tenant)
	if err == nil {
		defer unlock()
		err = l.update(ctx, tenant, func(ledger *Ledger) bool {
			_, there := ledger.Shares[h]
			delete(ledger.Shares, h)
			return there
		})
	}
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// isTenant reports whether a holder is a tenant.
func (h Holder) isTenant() bool { return h.Kind == v1alpha1.TenantHolder }
