// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilquota "k8s.io/apiserver/pkg/quota/v1"

	"github.com/berth-dev/berth/quota"
)

// errCrash ends whatever a process of the model does.
var errCrash = errors.New("the process was killed")

// world is a naive model of the host: ledgers, quotas, and pods. Before each access, the process waits for its turn, and may be killed
// then, or right after the access. After each write, the world checks what must always hold.
type world struct {
	t       *testing.T
	turn    func(process int) error
	version int
	ledgers map[string]*quota.Ledger
	spaces  map[string]*hostSpace
	// lowered has the tenants whose limit was lowered below what was used or reserved, until it isn't any more.
	lowered map[string]bool
	steps   int
	// older says that there are quotas from before there were ledgers, or of resources that are no longer limited, so that what must
	// always hold doesn't hold yet.
	older bool
}

// hostSpace is the namespace of a space on the host.
type hostSpace struct {
	tenant   string
	hard     quota.Amounts
	mark     string
	pods     map[string]quota.Amounts
	version  int
	hasQuota bool
}

func (s *hostSpace) used() quota.Amounts {
	sum := quota.Amounts{}
	for _, pod := range s.pods {
		sum = utilquota.Add(sum, pod)
	}
	return sum
}

func amounts(pods int64, cpu string) quota.Amounts {
	return quota.Amounts{corev1.ResourcePods: *resource.NewQuantity(pods, resource.DecimalSI), corev1.ResourceRequestsCPU: resource.MustParse(cpu)}
}

// process is one process's access to the world.
type process struct {
	*world
	id int
}

func (p *process) Ledger(_ context.Context, tenant string) (*quota.Ledger, error) {
	if err := p.turn(p.id); err != nil {
		return nil, err
	}
	ledger, ok := p.ledgers[tenant]
	if !ok {
		return nil, fmt.Errorf("ledger of tenant %s: %w", tenant, quota.ErrNotFound)
	}
	return clone(ledger), p.turn(p.id)
}

func clone(l *quota.Ledger) *quota.Ledger {
	copied := *l
	copied.Limit, copied.Allotted, copied.Shares = maps.Clone(l.Limit), maps.Clone(l.Allotted), map[quota.Holder]quota.Share{}
	for h, share := range l.Shares {
		copied.Shares[h] = quota.Share{Reserved: maps.Clone(share.Reserved), Lowering: maps.Clone(share.Lowering), Mark: share.Mark}
	}
	return &copied
}

func (p *process) UpdateLedger(_ context.Context, l *quota.Ledger) error {
	if err := p.turn(p.id); err != nil {
		return err
	}
	have, ok := p.ledgers[l.Tenant]
	if !ok || have.Version != l.Version {
		return quota.ErrConflict
	}
	updated := clone(l)
	updated.Limit, updated.Parent = have.Limit, have.Parent
	p.version++
	updated.Version = strconv.Itoa(p.version)
	p.ledgers[l.Tenant] = updated
	p.check()
	return p.turn(p.id)
}

func (p *process) SpaceQuota(_ context.Context, space string) (*quota.SpaceQuota, error) {
	if err := p.turn(p.id); err != nil {
		return nil, err
	}
	s, ok := p.spaces[space]
	if !ok || !s.hasQuota {
		return nil, fmt.Errorf("quota of space %s: %w", space, quota.ErrNotFound)
	}
	return &quota.SpaceQuota{Space: space, Hard: maps.Clone(s.hard), Used: s.used(), Mark: s.mark, Version: strconv.Itoa(s.version)}, p.turn(p.id)
}

func (p *process) UpdateSpaceQuota(_ context.Context, q *quota.SpaceQuota) error {
	if err := p.turn(p.id); err != nil {
		return err
	}
	s, ok := p.spaces[q.Space]
	switch {
	case !ok:
		return fmt.Errorf("namespace of space %s: %w", q.Space, quota.ErrNotFound)
	case s.hasQuota && strconv.Itoa(s.version) != q.Version, !s.hasQuota && q.Version != "":
		return quota.ErrConflict
	}
	s.hard, s.mark, s.hasQuota = maps.Clone(q.Hard), q.Mark, true
	p.version++
	s.version = p.version
	p.check()
	return p.turn(p.id)
}

// createPod is the host's admission of a pod.
func (p *process) createPod(space, name string, uses quota.Amounts) (refused bool, err error) {
	if err := p.turn(p.id); err != nil {
		return false, err
	}
	s, ok := p.spaces[space]
	if !ok || !s.hasQuota {
		return true, p.turn(p.id)
	}
	if fits, _ := utilquota.LessThanOrEqual(utilquota.Add(s.used(), uses), s.hard); !fits {
		return true, p.turn(p.id)
	}
	s.pods[name] = uses
	p.version++
	s.version = p.version
	p.check()
	return false, p.turn(p.id)
}

// deletePod deletes any pod of a space, and returns what it used.
func (p *process) deletePod(space, name string) error {
	if err := p.turn(p.id); err != nil {
		return err
	}
	if s, ok := p.spaces[space]; ok {
		delete(s.pods, name)
		p.version++
		s.version = p.version
		p.check()
	}
	return p.turn(p.id)
}

// setLimit is an admin who changes the limit of a tenant, and of those below it as far as theirs is higher, as the operator does.
func (w *world) setLimit(tenant string, limit quota.Amounts) {
	ledger := clone(w.ledgers[tenant])
	if above, ok := w.ledgers[ledger.Parent]; ok {
		limit = lowest(limit, above.Limit)
	}
	for name, amount := range ledger.Limit {
		if was := limit[name]; was.Cmp(amount) < 0 {
			w.lowered[tenant] = true
		}
	}
	ledger.Limit = limit
	w.version++
	ledger.Version = strconv.Itoa(w.version)
	w.ledgers[tenant] = ledger
	for name, below := range w.ledgers {
		if below.Parent == tenant {
			w.setLimit(name, lowest(below.Limit, limit))
		}
	}
}

func lowest(a, b quota.Amounts) quota.Amounts {
	low := quota.Amounts{}
	for name, amount := range a {
		low[name] = amount
		if other := b[name]; other.Cmp(amount) < 0 {
			low[name] = other
		}
	}
	return low
}

// inSubtree returns what all spaces of a tenant and of those below it use.
func (w *world) inSubtree(tenant string) quota.Amounts {
	sum := quota.Amounts{}
	for _, s := range w.spaces {
		for above := s.tenant; above != ""; above = w.ledgers[above].Parent {
			if above == tenant {
				sum = utilquota.Add(sum, s.used())
			}
		}
	}
	return sum
}

func within(a, b quota.Amounts) bool {
	for name, amount := range a {
		if limit := b[name]; amount.Cmp(limit) > 0 {
			return false
		}
	}
	return true
}

// check fails the test if something doesn't hold that must always hold.
func (w *world) check() {
	if w.steps++; w.older {
		return
	}
	for tenant, ledger := range w.ledgers {
		reserved := quota.Amounts{}
		for h, share := range ledger.Shares {
			reserved = utilquota.Add(reserved, share.Reserved)
			has := quota.Amounts{}
			if h == quota.Space(h.Name) {
				if s, ok := w.spaces[h.Name]; ok {
					has = s.hard
					if !within(s.used(), s.hard) {
						w.t.Fatalf("space %s uses %v, more than the %v that it has", h.Name, s.used(), s.hard)
					}
				}
			} else if below, ok := w.ledgers[h.Name]; ok {
				has = below.Allotted
			}
			if !within(has, share.Reserved) {
				w.t.Fatalf("%v has %v, more than the %v that the ledger of %s reserves", h, has, share.Reserved, tenant)
			}
		}
		if ledger.Parent != "" && !within(reserved, ledger.Allotted) {
			w.t.Fatalf("the ledger of %s reserves %v, more than the %v that it is allotted", tenant, reserved, ledger.Allotted)
		}
		if w.lowered[tenant] {
			w.lowered[tenant] = !within(reserved, ledger.Limit)
			continue
		}
		if !within(reserved, ledger.Limit) {
			w.t.Fatalf("the ledger of %s reserves %v, more than its limit of %v", tenant, reserved, ledger.Limit)
		}
		if used := w.inSubtree(tenant); !within(used, ledger.Limit) {
			w.t.Fatalf("tenant %s and those below use %v, more than the limit of %v", tenant, used, ledger.Limit)
		}
	}
}

func sum(a, b quota.Amounts) quota.Amounts { return utilquota.Add(a, b) }
