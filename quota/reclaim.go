// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/clock"
)

// reclaim takes from the holders of a ledger, except one, what they have and don't use, until it has freed so much. It reports whether it
// has freed anything.
func (l *Ledgers) reclaim(ctx context.Context, tenant string, except Holder, lacks Amounts) (freed bool, err error) {
	ledger, err := l.ledger(ctx, tenant)
	if err != nil {
		return false, err
	}
	end := l.idle.clock.Now().Add(reclaimTime)
	for _, h := range ledger.holders() {
		if h == except || l.idle.hasNone(h, lacks) {
			continue
		}
		taken, err := l.take(ctx, tenant, h, lacks)
		if errors.Is(err, ErrConflict) { // others change it all the time
			l.idle.note(h, lacks)
			continue
		}
		if err != nil {
			return freed, err
		}
		freed = freed || len(taken) > 0
		if lacks = Over(lacks, taken); len(lacks) == 0 || freed && l.idle.clock.Now().After(end) {
			break
		}
	}
	return freed, nil
}

// take takes from a holder what it has and doesn't use, at most so much, and half of what is left then, so that the others need not ask
// for each bit. It returns how much less is reserved for the holder.
func (l *Ledgers) take(ctx context.Context, tenant string, h Holder, most Amounts) (Amounts, error) {
	for range maxTakes {
		a, err := l.account(ctx, h)
		if errors.Is(err, ErrNotFound) {
			return nil, nil // what it has on the host, if anything, isn't known
		}
		if err != nil {
			return nil, err
		}
		ledger, err := l.ledger(ctx, tenant)
		if err != nil {
			return nil, err
		}
		share, there := ledger.Shares[h]
		if !there {
			return nil, nil
		}
		if len(share.Lowering) == 0 {
			spare := l.spare(h, a, share, most)
			if missing := Over(only(most, share.Reserved), spare); h.isTenant() && len(missing) > 0 {
				freed, err := l.reclaim(ctx, h.Name, Holder{}, missing)
				if err != nil {
					return nil, err
				}
				if freed {
					continue
				}
			}
			if len(spare) == 0 {
				l.idle.note(h, most)
				return nil, nil
			}
			share.Lowering = lowered(share.Reserved, spare, most)
			share.mark()
			ledger.Shares[h] = share
			if err := l.store.UpdateLedger(ctx, ledger); errors.Is(err, ErrConflict) {
				continue
			} else if err != nil {
				return nil, err
			}
		}
		l.idle.forget(h) // it may keep some
		if _, err := l.settle(ctx, tenant, h, nil); errors.Is(err, ErrForbidden) {
			l.idle.note(h, most)
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		after, err := l.ledger(ctx, tenant)
		if err != nil {
			return nil, err
		}
		if taken := only(Over(share.Reserved, after.Shares[h].Reserved), most); len(taken) > 0 {
			return taken, nil
		}
		// It has come to use it meanwhile.
	}
	return nil, nil
}

// spare is what a holder has of these resources and doesn't use.
func (l *Ledgers) spare(h Holder, a *account, share Share, of Amounts) Amounts {
	used := a.used
	if !h.isTenant() {
		if held := l.gates.Lower(h.Name, nil); held != nil {
			used = utilquota.Max(used, held)
		}
	}
	return Over(only(share.Reserved, of), used)
}

// lowered is what shares are lowered to.
func lowered(reserved, spare, most Amounts) Amounts {
	to := Amounts{}
	for name, amount := range spare {
		left, rest := reserved[name].DeepCopy(), amount.DeepCopy()
		if limit := most[name]; rest.Cmp(limit) > 0 {
			rest.Sub(limit)
			amount = limit.DeepCopy()
			amount.Add(half(name, rest))
		}
		left.Sub(amount)
		to[name] = left
	}
	return to
}

// Trim takes back what is reserved beyond a limit that was lowered, as far as it isn't used, for a tenant and the tenants above.
func (l *Ledgers) Trim(ctx context.Context, tenant string) error {
	unlock, err := l.lock(ctx, tenant)
	if err != nil {
		return err
	}
	defer unlock()
	for tenant != "" {
		ledger, err := l.ledger(ctx, tenant)
		if err != nil {
			return err
		}
		if excess := Over(only(ledger.reserved(), ledger.Limit), ledger.Limit); len(excess) > 0 {
			if _, err := l.reclaim(ctx, tenant, Holder{}, excess); err != nil {
				return err
			}
		}
		tenant = ledger.Parent
	}
	return nil
}

// Freed is told that a space may use less than before, or has another quota.
func (l *Ledgers) Freed(tenant, space string) {
	l.idle.forget(Space(space))
	for range maxDepth {
		if tenant == "" {
			return
		}
		l.idle.forget(Tenant(tenant))
		parent, known := l.trees.parent(tenant)
		if !known {
			break
		}
		tenant = parent
	}
	l.idle.forgetAll()
}

const (
	// reclaimTime is how long a ledger's holders are looked at, once something was freed: others wait for the tree meanwhile.
	reclaimTime = 2 * time.Second
	// maxTakes limits how often it is tried to take something from one holder.
	maxTakes = 20
)

// idleTime is how long nobody looks again whether a holder has something that it doesn't use, unless [Ledgers.Freed] tells so.
const idleTime = time.Second

// idleShares knows which holders use all that they have, so that a tenant that is refused again and again doesn't have all quotas of its
// tree read each time. It is safe for concurrent use.
type idleShares struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	none map[Holder]usesAll
}

type usesAll struct {
	of    Amounts // these resources
	until time.Time
}

// note notes that a holder uses all that it has of some resources.
func (i *idleShares) note(h Holder, of Amounts) {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.clock.Now()
	if i.none == nil || len(i.none) > maxIdle {
		i.none = map[Holder]usesAll{}
	}
	noted := i.none[h]
	if noted.until.Before(now) {
		noted = usesAll{of: Amounts{}, until: now.Add(idleTime)}
	}
	noted.of = maps.Clone(noted.of)
	maps.Copy(noted.of, of)
	i.none[h] = noted
}

// maxIdle limits how many holders are known.
const maxIdle = 100_000

// hasNone reports whether a holder is known to use all that it has of some resources.
func (i *idleShares) hasNone(h Holder, of Amounts) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	noted, known := i.none[h]
	return known && !noted.until.Before(i.clock.Now()) && len(only(of, noted.of)) == len(of)
}

func (i *idleShares) forgetAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.none = nil
}

func (i *idleShares) forget(h Holder) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.none, h)
}
