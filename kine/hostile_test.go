// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/hub"
)

func openFor(t *testing.T, a *bounds.Account) *kine.Store {
	t.Helper()
	s, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "state.db"), Name: "demo", Account: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// L3 (S2): what a list reads is taken from the space's budget while it is read, and the request that it doesn't fit says
// whether to try again is of any use.
func TestHostileAListThatTheBudgetHasNoPlaceForIsRefused(t *testing.T) {
	a := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 1 << 20})
	s := openFor(t, a)
	for i := range 30 {
		create(t, s, fmt.Sprintf("/registry/pods/%02d", i), strings.Repeat("x", 50<<10))
	}
	list := func(r *bounds.Reservation, limit int64) (int, error) {
		resp, err := s.Client().Kubernetes.List(bounds.WithReservation(t.Context(), r), "/registry/pods/", kubernetes.ListOptions{Limit: limit})
		return len(resp.Kvs), err
	}
	whole := a.Reserve(bounds.MemoryBytes, 0)
	var exceeded *bounds.ExceededError
	if _, err := list(whole, 0); !errors.As(err, &exceeded) || !exceeded.Alone {
		t.Fatalf("a list of 1.5 MiB = %v, want that it is too large even alone", err)
	}
	whole.End()
	page := a.Reserve(bounds.MemoryBytes, 0)
	if n, err := list(page, 15); err != nil || n == 0 || n > 4 || a.Used(bounds.MemoryBytes) < int64(n)*50<<10 {
		t.Errorf("page of %d, %v, with %d accounted", n, err, a.Used(bounds.MemoryBytes))
	}
	rest := a.Limit(bounds.MemoryBytes) - a.Used(bounds.MemoryBytes)
	if err := a.Take(bounds.MemoryBytes, rest); err != nil {
		t.Fatal(err)
	}
	other := a.Reserve(bounds.MemoryBytes, 0)
	if _, err := list(other, 15); !errors.As(err, &exceeded) || exceeded.Alone {
		t.Errorf("a second page = %v, want that the budget is used up now", err)
	}
	other.End()
	a.Give(bounds.MemoryBytes, rest)
	page.End()
	if used := a.Used(bounds.MemoryBytes); used != 0 {
		t.Errorf("%d bytes are accounted with nothing under way", used)
	}
}

// A page of large objects is cut, as etcd's clients expect it: with more to come, and their number.
func TestALongPageIsCut(t *testing.T) {
	s := openNew(t)
	for i := range 12 {
		create(t, s, fmt.Sprintf("/registry/pods/%02d", i), strings.Repeat("x", 1<<20))
	}
	resp, err := s.Client().KV.Get(t.Context(), "/registry/pods/", clientv3.WithRange("/registry/pods0"), clientv3.WithLimit(500))
	if err != nil || len(resp.Kvs) != 8 || !resp.More || resp.Count != 12 {
		t.Fatalf("%d of %d, more: %t, %v", len(resp.Kvs), resp.Count, resp.More, err)
	}
	rest, err := s.Client().KV.Get(t.Context(), "/registry/pods/08", clientv3.WithRange("/registry/pods0"), clientv3.WithLimit(500),
		clientv3.WithRev(resp.Header.Revision))
	if err != nil || len(rest.Kvs) != 4 || rest.More {
		t.Fatalf("then %d, more: %t, %v", len(rest.Kvs), rest.More, err)
	}
}

// L3 (S2): a watch that nobody reads holds a bounded part of the changes, and misses none.
func TestHostileAWatchThatNobodyReadsHoldsLittle(t *testing.T) {
	a := bounds.NewAccount(nil)
	s := openFor(t, a)
	flow := hub.NewFlow(a, func() { t.Error("the budget is used up") })
	watch := s.Client().Watch(hub.WithFlow(t.Context(), flow), "/registry/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	rev := int64(0)
	const writes, size = 50, 1 << 20
	value := strings.Repeat("x", size)
	for range writes {
		rev = put(t, s, "/registry/a", value, rev)
	}
	until(t, func() bool { return a.Used(bounds.WatchBytes) > 0 })
	if used := a.Used(bounds.WatchBytes); used > 8*size {
		t.Errorf("%d bytes wait for a watch that nobody reads", used)
	}
	for seen := 0; seen < writes; {
		for _, e := range (<-watch).Events {
			seen++
			flow.Done(e.Kv.ModRevision)
		}
	}
	if used := a.Used(bounds.WatchBytes); used != 0 {
		t.Errorf("%d bytes are accounted once all was read", used)
	}
}

// L3 (S2): the lists that watches begin with wait for their client, too.
func TestHostileAWatchBeginsWithPagesThatItsClientTakes(t *testing.T) {
	a := bounds.NewAccount(nil)
	s := openFor(t, a)
	for i := range 10 {
		create(t, s, fmt.Sprintf("/registry/pods/%02d", i), strings.Repeat("x", 300<<10))
	}
	flow := hub.NewFlow(a, func() {})
	ctx := hub.WithFlow(t.Context(), flow)
	next, seen := "/registry/pods/", 0
	for more := true; more; {
		resp, err := s.Client().KV.Get(ctx, next, clientv3.WithRange("/registry/pods0"), clientv3.WithLimit(10000))
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Kvs) > 2 || a.Used(bounds.WatchBytes) == 0 {
			t.Errorf("a page of %d objects of 300 KiB, with %d bytes accounted", len(resp.Kvs), a.Used(bounds.WatchBytes))
		}
		for _, kv := range resp.Kvs {
			seen++
			next = string(kv.Key) + "\x00"
			flow.Skip(kv.ModRevision) // as if the client wanted none of them
		}
		more = resp.More
	}
	if used := a.Used(bounds.WatchBytes); seen != 10 || used != 0 {
		t.Errorf("%d objects, %d bytes accounted", seen, used)
	}
}

// L3 (S2): objects are counted as they are written, and none is made beyond the limit.
func TestHostileAStoreTakesNoMoreObjectsThanAllowed(t *testing.T) {
	a := bounds.NewAccount(bounds.Limits{bounds.Objects: 5})
	path := filepath.Join(t.TempDir(), "state.db")
	open := func() *kine.Store {
		s, err := kine.Open(t.Context(), kine.Options{Path: path, Account: a})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	revs := map[string]int64{}
	for i := range 5 {
		key := fmt.Sprintf("/registry/%d", i)
		revs[key] = create(t, s, key, "1")
	}
	_, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/more", []byte("1"), 0, kubernetes.PutOptions{GetOnFailure: true})
	if !errors.Is(err, bounds.ErrExceeded) {
		t.Errorf("a sixth object = %v", err)
	}
	put(t, s, "/registry/0", "2", revs["/registry/0"])
	remove(t, s, "/registry/1", revs["/registry/1"])
	create(t, s, "/registry/more", "1")
	closeStore(t, s)
	a.Set(bounds.Objects, 0)
	s = open()
	defer closeStore(t, s)
	if used := a.Used(bounds.Objects); used != 5 {
		t.Errorf("%d objects are counted when the store is opened again, want 5", used)
	}
}

// L3: kinds of which each object costs for each request, or for each pod, have limits of their own.
func TestHostileAStoreTakesNoMoreOfAKindThanAllowed(t *testing.T) {
	prefixes := map[bounds.Quantity]string{
		bounds.ClusterRoleBindings: "/registry/clusterrolebindings/", bounds.RoleBindings: "/registry/rolebindings/default/", bounds.Autoscalers: "/registry/horizontalpodautoscalers/default/",
		bounds.ResourceQuotas: "/registry/resourcequotas/default/", bounds.ServiceRanges: "/registry/servicecidrs/", bounds.NetworkPolicies: "/registry/networkpolicies/default/",
		bounds.DisruptionBudgets: "/registry/poddisruptionbudgets/default/", bounds.Deployments: "/registry/deployments/default/",
	}
	limits := bounds.Limits{}
	for quantity := range prefixes {
		limits[quantity] = 2
	}
	a := bounds.NewAccount(limits)
	path := filepath.Join(t.TempDir(), "state.db")
	open := func() *kine.Store {
		s, err := kine.Open(t.Context(), kine.Options{Path: path, Account: a})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	create(t, s, "/registry/clusterroles/c", "1")
	for quantity, prefix := range prefixes {
		create(t, s, prefix+"a", "1")
		rev := create(t, s, prefix+"b", "1")
		_, err := s.Client().Kubernetes.OptimisticPut(t.Context(), prefix+"c", []byte("1"), 0, kubernetes.PutOptions{GetOnFailure: true})
		if !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limit "+quantity.String()) {
			t.Errorf("a third of %s = %v", prefix, err)
		}
		remove(t, s, prefix+"b", rev)
		if used := a.Used(quantity); used != 1 {
			t.Errorf("%d of %s are counted", used, prefix)
		}
		a.Set(quantity, 0)
	}
	closeStore(t, s)
	s = open()
	defer closeStore(t, s)
	for quantity := range prefixes {
		if used := a.Used(quantity); used != 1 {
			t.Errorf("%d of %s are counted when the store is opened again, want 1", used, quantity)
		}
	}
	if used := a.Used(bounds.Objects); used != int64(1+len(prefixes)) {
		t.Errorf("%d objects are counted", used)
	}
}

// L3 (S2): one large change that many watches wait for passes the space's budget once, not once for each of them. All that
// read get all changes in the end.
func TestHostileManyWatchesOfALargeChangeStayWithinTheBudget(t *testing.T) {
	const watches, size, limit, writes = 40, 1 << 20, 4 << 20, 3
	const event = 3 * (2*size + 1024) // with the value before
	a := bounds.NewAccount(bounds.Limits{bounds.WatchBytes: limit})
	s := openFor(t, a)
	var most atomic.Int64
	see := func() {
		for used, m := a.Used(bounds.WatchBytes), most.Load(); used > m && !most.CompareAndSwap(m, used); m = most.Load() {
		}
	}
	var proceed sync.WaitGroup
	proceed.Add(1)
	var readers sync.WaitGroup
	flows, refused := make([]*hub.Flow, watches), make([]atomic.Bool, watches)
	for i := range watches {
		flow := hub.NewFlow(a, func() { refused[i].Store(true) })
		flows[i] = flow
		watch := s.Client().Watch(hub.WithFlow(t.Context(), flow), "/registry/", clientv3.WithPrefix(), clientv3.WithPrevKV())
		readers.Go(func() {
			defer flow.End()
			proceed.Wait()
			for seen := 0; seen < writes; {
				select {
				case r, ok := <-watch:
					if !ok {
						t.Error("a watch has ended")
						return
					}
					for _, e := range r.Events {
						see()
						seen++
						flow.Done(e.Kv.ModRevision)
					}
				case <-time.After(30 * time.Second):
					t.Errorf("a watch got %d of %d changes", seen, writes)
					return
				}
			}
		})
	}
	rev, value := int64(0), strings.Repeat("x", size)
	for range writes {
		rev = put(t, s, "/registry/a", value, rev)
	}
	// Nobody reads before each watch has been handed a change or has waited for the budget.
	until(t, func() bool {
		see()
		for i, flow := range flows {
			if bytes, _ := flow.Held(); bytes == 0 && !refused[i].Load() {
				return false
			}
		}
		return true
	})
	proceed.Done()
	readers.Wait()
	if m := most.Load(); m > limit+event {
		t.Errorf("%d bytes wait for watches that may hold %d", m, limit)
	}
	if used := a.Used(bounds.WatchBytes); used != 0 {
		t.Errorf("%d bytes are accounted once all was read", used)
	}
}

// L1, L3: the lists that watches begin with wait for their turns, and hold them only while they are read. Other lists don't: their
// requests have turns.
func TestHostileListsOfWatchesTakeTurns(t *testing.T) {
	a := bounds.NewAccount(nil)
	s := openFor(t, a)
	rev := create(t, s, "/registry/pods/a", "x")
	turn, asked := make(chan struct{}, 1), make(chan struct{})
	work := &bounds.Work{}
	work.ByTurns(bounds.Turns{Take: func(context.Context) (func(), error) {
		asked <- struct{}{}
		turn <- struct{}{}
		return func() { <-turn }, nil
	}})
	ctx := bounds.WithWork(t.Context(), work)
	list := func(ctx context.Context) error {
		resp, err := s.Client().KV.Get(ctx, "/registry/pods/", clientv3.WithRange("/registry/pods0"), clientv3.WithLimit(500))
		if err == nil && len(resp.Kvs) != 1 {
			t.Errorf("%d keys, want 1", len(resp.Kvs))
		}
		return err
	}
	if err := list(ctx); err != nil {
		t.Errorf("list of a request: %v", err)
	}
	turn <- struct{}{} // of another tenant
	flow := hub.NewFlow(a, func() {})
	listed := make(chan error)
	go func() { listed <- list(hub.WithFlow(ctx, flow)) }()
	<-asked
	if held, _ := flow.Held(); held > 0 {
		t.Errorf("%d bytes are read before the turn", held)
	}
	<-turn
	if err := <-listed; err != nil {
		t.Errorf("list of a watch: %v", err)
	}
	if held, _ := flow.Held(); held == 0 || len(turn) > 0 {
		t.Errorf("%d bytes are read, and %d turns held; want some, and none", held, len(turn))
	}
	flow.Done(rev)
}

// L3 (S2): so do the lists that watches begin with.
func TestHostileManyWatchesThatBeginWithAListStayWithinTheBudget(t *testing.T) {
	const lists, size, limit = 30, 1 << 20, 4 << 20
	a := bounds.NewAccount(bounds.Limits{bounds.WatchBytes: limit})
	s := openFor(t, a)
	rev := create(t, s, "/registry/pods/a", strings.Repeat("x", size))
	var wg, asked sync.WaitGroup
	asked.Add(lists)
	for range lists {
		hasAsked := sync.OnceFunc(asked.Done)
		flow := hub.NewFlow(a, hasAsked)
		wg.Go(func() {
			resp, err := s.Client().KV.Get(hub.WithFlow(t.Context(), flow), "/registry/pods/", clientv3.WithRange("/registry/pods0"), clientv3.WithLimit(500))
			if err != nil || len(resp.Kvs) != 1 {
				t.Errorf("list: %v", err)
			}
			hasAsked()
			asked.Wait() // Nothing is given back before each list has been read or has waited for the budget.
			if used := a.Used(bounds.WatchBytes); used == 0 || used > limit+3*(size+1024) {
				t.Errorf("%d bytes are accounted for lists that may hold %d", used, limit)
			}
			flow.Done(rev)
		})
	}
	wg.Wait()
	if used := a.Used(bounds.WatchBytes); used != 0 {
		t.Errorf("%d bytes are accounted once all was read", used)
	}
}
