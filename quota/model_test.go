// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/internal/testrace"
	"github.com/berth-dev/berth/quota"
)

// schedule lets one process go on at a time, chosen at random, and kills some.
type schedule struct {
	random *rand.Rand
	crash  bool
	mu     sync.Mutex
	at     map[int]chan error // where processes wait for their turn
	active int
}

// turn waits for the turn of a process.
func (s *schedule) turn(process int) error {
	mine := make(chan error)
	s.mu.Lock()
	s.at[process] = mine
	s.next()
	s.mu.Unlock()
	return <-mine
}

// next gives somebody the turn, once all wait for theirs. It is called with mu held.
func (s *schedule) next() {
	if s.active == 0 || len(s.at) < s.active {
		return
	}
	waiting := slices.Sorted(maps.Keys(s.at))
	chosen := waiting[s.random.IntN(len(waiting))]
	to := s.at[chosen]
	delete(s.at, chosen)
	var err error
	if s.crash && s.random.IntN(150) == 0 {
		err = errCrash
	}
	go func() { to <- err }() // the caller may be the one that is chosen
}

func (s *schedule) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active--
	s.next()
}

// node is a process of a platform: it has some of the spaces.
type node struct {
	process
	clock  clock.Clock
	own    *quota.Ledgers
	gates  map[string]*quota.Gate
	spaces []string
	random *rand.Rand
	named  int
}

func (n *node) Lower(space string, to quota.Amounts) quota.Amounts {
	if gate := n.gates[space]; gate != nil {
		return gate.Lower(to)
	}
	return nil
}

func (n *node) Raise(space string, hard quota.Amounts) {
	if gate := n.gates[space]; gate != nil {
		gate.Raise(hard)
	}
}

// restart has the process begin anew: it knows nothing but what the host has.
func (n *node) restart() {
	n.own, n.gates = quota.New(&n.process, n, n.clock), map[string]*quota.Gate{}
	for _, space := range n.spaces {
		tenant := n.world.spaces[space].tenant
		gate := quota.NewGate(func(ctx context.Context, has, more quota.Amounts) error {
			_, err := n.own.Grow(ctx, quota.Request{Space: space, Tenant: tenant, Has: has, More: more})
			return err
		}, n.clock)
		for name, pod := range n.world.spaces[space].pods {
			gate.Saw(name, nil, pod)
		}
		n.gates[space] = gate
	}
}

// do does something at random.
func (n *node) do(ctx context.Context) error {
	space := n.spaces[n.random.IntN(len(n.spaces))]
	switch n.random.IntN(10) {
	case 0:
		return n.own.Trim(ctx, n.world.spaces[space].tenant)
	case 1, 2, 3:
		return n.delete(space)
	default:
		_, err := n.create(ctx, space, amounts(1, fmt.Sprintf("%dm", 1+n.random.IntN(1500))))
		if quota.IsExceeded(err) {
			return nil
		}
		return err
	}
}

func (n *node) delete(space string) error {
	pods := slices.Sorted(maps.Keys(n.world.spaces[space].pods))
	if len(pods) == 0 {
		return nil
	}
	name := pods[n.random.IntN(len(pods))]
	uses := n.world.spaces[space].pods[name]
	err := n.deletePod(space, name)
	if err == nil {
		n.gates[space].Saw(name, uses, nil)
		n.own.Freed(n.world.spaces[space].tenant, space)
	}
	return err
}

// create creates a pod, as a space and its syncer do.
func (n *node) create(ctx context.Context, space string, uses quota.Amounts) (created bool, err error) {
	n.named++
	name := fmt.Sprintf("%s-%d-%d", space, n.id, n.named)
	for range 20 {
		admitted, err := n.gates[space].Admit(ctx, name, uses)
		if err != nil {
			return false, err
		}
		refused, err := n.createPod(space, name, uses)
		if err == nil && !refused {
			n.gates[space].Saw(name, nil, uses)
			return true, nil
		}
		admitted.Done(false)
		if err != nil {
			return false, err
		}
		n.gates[space].Forget() // another process has lowered the quota
	}
	return false, nil
}

// newWorld makes a tree of depth 4 with a few tenants and spaces, and processes that share the spaces.
func newWorld(t *testing.T, seed uint64, crash bool) (*world, *schedule, []*node) {
	s := &schedule{random: rand.New(rand.NewPCG(seed, 1)), crash: crash, at: map[int]chan error{}}
	w := &world{t: t, ledgers: map[string]*quota.Ledger{}, spaces: map[string]*hostSpace{}, lowered: map[string]bool{}, turn: s.turn}
	for i, tenant := range []struct{ name, parent string }{{"a", ""}, {"b", "a"}, {"c", "a"}, {"d", "b"}, {"e", "d"}, {"f", "d"}} {
		w.version++
		ledger := &quota.Ledger{Tenant: tenant.name, Parent: tenant.parent, Limit: amounts(int64(4+s.random.IntN(12)), fmt.Sprintf("%d", 2+s.random.IntN(8))), Shares: map[quota.Holder]quota.Share{}, Version: fmt.Sprint(i)}
		if above := w.ledgers[tenant.parent]; above != nil {
			ledger.Limit = lowest(ledger.Limit, above.Limit)
		}
		w.ledgers[tenant.name] = ledger
	}
	owners := []string{"a", "b", "c", "d", "e", "e", "f", "c"}
	nodes := make([]*node, 3)
	fake := &steppedClock{FakePassiveClock: testingclock.NewFakePassiveClock(time.Unix(0, 0))}
	for i := range nodes {
		nodes[i] = &node{process: process{w, i}, random: rand.New(rand.NewPCG(seed, uint64(i+2))), clock: fake}
	}
	for i, tenant := range owners {
		name := fmt.Sprintf("s%d", i)
		w.spaces[name] = &hostSpace{tenant: tenant, pods: map[string]quota.Amounts{}}
		nodes[i%len(nodes)].spaces = append(nodes[i%len(nodes)].spaces, name)
	}
	for _, n := range nodes {
		n.restart()
	}
	return w, s, nodes
}

// run has all processes do random things.
func run(t *testing.T, s *schedule, nodes []*node, steps int) {
	t.Helper()
	s.active = len(nodes)
	var group sync.WaitGroup
	for _, n := range nodes {
		group.Go(func() {
			defer s.leave()
			for range steps {
				switch err := n.do(t.Context()); {
				case errors.Is(err, errCrash):
					n.restart()
				case err != nil:
					t.Errorf("process %d: %v", n.id, err)
					return
				}
			}
		})
	}
	group.Wait()
}

// Q3, Q5: whatever processes do at the same time, and wherever they are killed, no limit is ever exceeded, and in the end nothing is lost:
// a tenant can use exactly what nobody uses.
func TestNoLimitIsEverExceeded(t *testing.T) {
	seeds, steps, least := 70, 100, 100_000
	if testrace.Enabled {
		seeds, least = 10, 10_000
	}
	total := 0
	for seed := range seeds {
		w, s, nodes := newWorld(t, uint64(seed), seed%2 == 1)
		for round := range 3 {
			run(t, s, nodes, steps)
			if t.Failed() {
				t.Fatalf("seed %d, round %d", seed, round)
			}
			settled(t, w, s, nodes)
			if t.Failed() {
				t.Fatalf("seed %d, round %d, when all is quiet", seed, round)
			}
			tenant := []string{"a", "b", "c", "d", "e", "f"}[s.random.IntN(6)]
			w.setLimit(tenant, amounts(int64(3+s.random.IntN(14)), fmt.Sprintf("%d", 1+s.random.IntN(9))))
		}
		total += w.steps
	}
	if total < least {
		t.Errorf("only %d writes were checked, want %d", total, least)
	}
}

// settled checks that, with one process at work, a pod is refused if and only if a limit doesn't allow it.
func settled(t *testing.T, w *world, s *schedule, nodes []*node) {
	t.Helper()
	crash := s.crash
	s.crash = false
	defer func() { s.crash = crash }()
	for _, n := range nodes {
		n.restart()
	}
	s.active = 1
	for _, space := range slices.Sorted(maps.Keys(w.spaces)) { // as after each change of a limit
		if err := nodes[0].own.Trim(t.Context(), w.spaces[space].tenant); err != nil {
			t.Error(err)
		}
	}
	s.active = 0
	for range 40 {
		n := nodes[s.random.IntN(len(nodes))]
		space := n.spaces[s.random.IntN(len(n.spaces))]
		uses, fits := amounts(1, fmt.Sprintf("%dm", 1+s.random.IntN(900))), true
		for tenant := w.spaces[space].tenant; tenant != ""; tenant = w.ledgers[tenant].Parent {
			fits = fits && within(sum(w.inSubtree(tenant), uses), w.ledgers[tenant].Limit)
		}
		s.active = 1
		created, err := n.create(t.Context(), space, uses)
		s.active = 0
		for _, other := range nodes { // which look again after some seconds
			other.own.Freed(w.spaces[space].tenant, space)
		}
		if err != nil && !quota.IsExceeded(err) {
			t.Errorf("create in %s: %v", space, err)
			return
		}
		if created != fits {
			t.Errorf("create in %s: created %v, but it fits: %v; %v", space, created, fits, err)
			return
		}
	}
}

// steppedClock is a clock on which nobody waits: it goes on instead. The processes take turns, so that it is safe.
type steppedClock struct{ *testingclock.FakePassiveClock }

func (c *steppedClock) After(d time.Duration) <-chan time.Time {
	now := c.Now().Add(d)
	c.SetTime(now)
	then := make(chan time.Time, 1)
	then <- now
	return then
}

func (c *steppedClock) Sleep(d time.Duration) { <-c.After(d) }

func (c *steppedClock) NewTimer(time.Duration) clock.Timer { panic("nobody makes timers") }

func (c *steppedClock) Tick(time.Duration) <-chan time.Time { panic("nobody ticks") }
