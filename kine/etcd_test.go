// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

func TestAKeyIsCreatedOnceUpdatedAtItsVersionAndDeletedAtItsVersion(t *testing.T) {
	onEach(t, testAKeyIsCreatedOnceUpdatedAtItsVersionAndDeletedAtItsVersion)
}

func testAKeyIsCreatedOnceUpdatedAtItsVersionAndDeletedAtItsVersion(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client().Kubernetes
	const kv = "/registry/configmaps/default/a"

	first := create(t, s, kv, "1")
	if again, err := c.OptimisticPut(t.Context(), kv, []byte("x"), 0, kubernetes.PutOptions{}); err != nil || again.Succeeded {
		t.Errorf("created twice: %+v, %v", again, err)
	}
	second := put(t, s, kv, "2", first)
	if second <= first {
		t.Errorf("revision went from %d to %d", first, second)
	}

	stale, err := c.OptimisticPut(t.Context(), kv, []byte("x"), first, kubernetes.PutOptions{GetOnFailure: true})
	if err != nil || stale.Succeeded || stale.KV == nil || string(stale.KV.Value) != "2" || stale.KV.ModRevision != second {
		t.Errorf("stale update: %+v, %v; it should fail with version 2", stale, err)
	}
	staleDelete, err := c.OptimisticDelete(t.Context(), kv, first, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || staleDelete.Succeeded || staleDelete.KV == nil || staleDelete.KV.ModRevision != second {
		t.Errorf("stale delete: %+v, %v; it should fail with version 2", staleDelete, err)
	}

	got, err := c.Get(t.Context(), kv, kubernetes.GetOptions{})
	if err != nil || string(got.KV.Value) != "2" || got.KV.CreateRevision != first || got.KV.ModRevision != second {
		t.Errorf("get: %+v, %v", got, err)
	}
	old, err := c.Get(t.Context(), kv, kubernetes.GetOptions{Revision: first})
	if err != nil || string(old.KV.Value) != "1" {
		t.Errorf("get at %d: %+v, %v", first, old, err)
	}

	gone := remove(t, s, kv, second)
	if v := value(t, s, kv); v != "" {
		t.Errorf("deleted key reads %q", v)
	}
	if third := create(t, s, kv, "3"); third <= gone {
		t.Errorf("made anew at %d, after it was deleted at %d", third, gone)
	}
	absent, err := c.OptimisticDelete(t.Context(), "/registry/none", 7, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || absent.Succeeded || absent.KV != nil {
		t.Errorf("delete of a key that never was: %+v, %v; it should not succeed", absent, err)
	}
}

func TestAPutWritesWhateverWasThere(t *testing.T) { onEach(t, testAPutWritesWhateverWasThere) }

func testAPutWritesWhateverWasThere(t *testing.T, p place) {
	s := p.open(t)
	watch := s.Client().Watch(t.Context(), "/registry/a")
	const writers, writes = 4, 20
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range writes {
				if resp, err := s.Client().Put(t.Context(), "/registry/a", "1"); err != nil || resp.Header.Revision == 0 {
					t.Errorf("put: %+v, %v", resp, err)
				}
			}
		})
	}
	if n := len(take(t, watch, writers*writes)); n != writers*writes {
		t.Errorf("%d of %d puts were written", n, writers*writes)
	}
	writing.Wait()
}

func TestAFutureRevisionIsRefused(t *testing.T) { onEach(t, testAFutureRevisionIsRefused) }

func testAFutureRevisionIsRefused(t *testing.T, p place) {
	s := p.open(t)
	create(t, s, "/registry/a", "1")
	if _, err := s.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{Revision: 1 << 40}); !errors.Is(err, rpctypes.ErrFutureRev) {
		t.Errorf("get = %v, want %v", err, rpctypes.ErrFutureRev)
	}
}

func TestAListComesInPagesOfOneMoment(t *testing.T) { onEach(t, testAListComesInPagesOfOneMoment) }

func testAListComesInPagesOfOneMoment(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client().Kubernetes
	const n = 25
	for i := range n {
		create(t, s, fmt.Sprintf("/registry/pods/default/%02d", i), "1")
	}
	create(t, s, "/registry/podsx", "not below the prefix")

	// Writes before, within and after each page must not show in the pages that follow.
	stop, stopped := make(chan struct{}), sync.WaitGroup{}
	stopped.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				key := fmt.Sprintf("/registry/pods/default/%02d-%d", i%n, i)
				remove(t, s, key, create(t, s, key, "x"))
			}
		}
	})
	for range 50 {
		first, err := c.List(t.Context(), "/registry/pods/", kubernetes.ListOptions{Limit: 10})
		if err != nil || len(first.Kvs) != 10 || first.Count < n {
			t.Fatalf("first page: %d of %d, %v", len(first.Kvs), first.Count, err)
		}
		all, err := c.List(t.Context(), "/registry/pods/", kubernetes.ListOptions{Revision: first.Revision})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(all.Kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) }) {
			t.Error("the list isn't in the order of its keys")
		}
		if first.Count != int64(len(all.Kvs)) {
			t.Errorf("first page counts %d; there were %d", first.Count, len(all.Kvs))
		}
		for i, kv := range first.Kvs {
			if string(kv.Key) != string(all.Kvs[i].Key) {
				t.Fatalf("page at revision %d has %s where the list has %s", first.Revision, kv.Key, all.Kvs[i].Key)
			}
		}
		rest, err := c.List(t.Context(), "/registry/pods/", kubernetes.ListOptions{
			Revision: first.Revision, Limit: 10, Continue: string(first.Kvs[9].Key) + "\x00"})
		if err != nil || string(rest.Kvs[0].Key) != string(all.Kvs[10].Key) {
			t.Fatalf("second page begins with %s, want %s; %v", rest.Kvs[0].Key, all.Kvs[10].Key, err)
		}
	}
	close(stop)
	stopped.Wait()
	if got, err := c.Count(t.Context(), "/registry/pods/", kubernetes.CountOptions{}); err != nil || got != n {
		t.Errorf("count = %d, %v; want %d", got, err, n)
	}
}

func TestAnEmptyListAndTheWatchFromItMissNothing(t *testing.T) {
	onEach(t, testAnEmptyListAndTheWatchFromItMissNothing)
}

func testAnEmptyListAndTheWatchFromItMissNothing(t *testing.T, p place) {
	s := p.open(t)
	var clients sync.WaitGroup
	for c := range 4 {
		clients.Go(func() {
			for i := range 60 {
				prefix := fmt.Sprintf("/registry/things%d-%d/", c, i)
				made := make(chan int64, 1)
				go func() { made <- create(t, s, prefix+"a", "1") }()
				for empty := int64(0); ; {
					list, err := s.Client().Kubernetes.List(t.Context(), prefix, kubernetes.ListOptions{})
					if err != nil {
						t.Error(err)
						return
					}
					if len(list.Kvs) == 0 {
						empty = list.Revision
						continue
					}
					if rev := <-made; rev <= empty {
						t.Errorf("list at %d is without the key made at %d: a watch from there would miss it", empty, rev)
						return
					}
					break
				}
			}
		})
	}
	clients.Wait()
}

func TestALeaseTakesItsKeyWithIt(t *testing.T) { onEach(t, testALeaseTakesItsKeyWithIt) }

func testALeaseTakesItsKeyWithIt(t *testing.T, p place) {
	s := p.open(t)
	lease, err := s.Client().Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	watch := s.Client().Watch(t.Context(), "/registry/events/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/events/a", []byte("1"), 0, kubernetes.PutOptions{LeaseID: lease.ID})
	if err != nil || !resp.Succeeded {
		t.Fatal(resp, err)
	}
	create(t, s, "/registry/events/b", "1")
	for e := range events(t, watch) {
		if e.Type == clientv3.EventTypeDelete {
			if string(e.Kv.Key) != "/registry/events/a" {
				t.Errorf("%s went", e.Kv.Key)
			}
			break
		}
	}
	if a, b := value(t, s, "/registry/events/a"), value(t, s, "/registry/events/b"); a != "" || b != "1" {
		t.Errorf("a = %q, b = %q; want a gone and b there", a, b)
	}
}

// The API server compacts every five minutes; a client that was away longer must be told.
func TestACompactedRevisionIsGoneForReadsAndWatches(t *testing.T) {
	onEach(t, testACompactedRevisionIsGoneForReadsAndWatches)
}

func testACompactedRevisionIsGoneForReadsAndWatches(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client().Kubernetes
	first := create(t, s, "/registry/a", "0")
	rev := first
	for i := range 1500 { // the last 1000 are always kept
		rev = put(t, s, "/registry/a", fmt.Sprint(i), rev)
	}
	target := first + 300
	if _, err := s.Client().Compact(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context())
	if err != nil || stats.CompactedRevision != target || stats.Revision != rev {
		t.Errorf("stats: %+v, %v; want compacted %d, revision %d", stats, err, target, rev)
	}
	if _, err := c.Get(t.Context(), "/registry/a", kubernetes.GetOptions{Revision: first}); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("get at %d = %v, want %v", first, err, rpctypes.ErrCompacted)
	}
	if _, err := c.List(t.Context(), "/registry/", kubernetes.ListOptions{Revision: first}); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("list at %d = %v, want %v", first, err, rpctypes.ErrCompacted)
	}
	watched := <-s.Client().Watch(t.Context(), "/registry/a", clientv3.WithRev(first))
	if err := watched.Err(); !errors.Is(err, rpctypes.ErrCompacted) || watched.CompactRevision != target {
		t.Errorf("watch from %d: %v, compacted at %d; want %v, %d", first, err, watched.CompactRevision, rpctypes.ErrCompacted, target)
	}
	if _, err := s.Client().Compact(t.Context(), target); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("second compaction = %v, want %v", err, rpctypes.ErrCompacted)
	}
	if got, err := c.Get(t.Context(), "/registry/a", kubernetes.GetOptions{Revision: target + 1}); err != nil || got.KV == nil {
		t.Errorf("get after the compacted revision: %+v, %v", got, err)
	}
	if v := value(t, s, "/registry/a"); v != "1499" {
		t.Errorf("value = %q after compaction", v)
	}
}

// Design: published figures of kine are 32 to 89 % errors with 50 writers.
func TestFiftyWritersHaveNoErrorsAndWatchersSeeEveryWriteInOrder(t *testing.T) {
	onEach(t, testFiftyWritersHaveNoErrorsAndWatchersSeeEveryWriteInOrder)
}

func testFiftyWritersHaveNoErrorsAndWatchersSeeEveryWriteInOrder(t *testing.T, p place) {
	s := p.open(t)
	const writers, writes, watchers = 50, 40, 10
	var watching sync.WaitGroup
	for range watchers {
		watch := s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV())
		watching.Go(func() {
			seen, last := 0, int64(0)
			for e := range events(t, watch) {
				if e.Kv.ModRevision <= last {
					t.Errorf("event %d after %d", e.Kv.ModRevision, last)
				}
				last = e.Kv.ModRevision
				if strings.HasPrefix(string(e.Kv.Key), "/registry/w/") {
					seen++
				}
				if seen == writers*writes*3 {
					return
				}
			}
		})
	}
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				key := fmt.Sprintf("/registry/w/%d-%d", w, i)
				remove(t, s, key, put(t, s, key, "2", create(t, s, key, "1")))
			}
		})
	}
	// Racing for one key, each version has one winner.
	const rounds = 20
	rev := create(t, s, "/registry/contended", "0")
	for range rounds {
		wins := make(chan int64, writers)
		var racing sync.WaitGroup
		for w := range writers {
			racing.Go(func() {
				resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/contended", fmt.Append(nil, w), rev, kubernetes.PutOptions{GetOnFailure: true})
				if err != nil {
					t.Error(err)
				}
				if resp.Succeeded {
					wins <- resp.Revision
				}
			})
		}
		racing.Wait()
		if len(wins) != 1 {
			t.Fatalf("%d writers won one race", len(wins))
		}
		rev = <-wins
	}
	writing.Wait()
	watching.Wait()
}

// events yields a watch's events until the watch ends, or a generous while passes without any.
func events(t *testing.T, watch clientv3.WatchChan) func(func(*clientv3.Event) bool) {
	return func(yield func(*clientv3.Event) bool) {
		for {
			select {
			case resp, ok := <-watch:
				if err := resp.Err(); !ok || err != nil {
					t.Errorf("watch ended: %v", err)
					return
				}
				for _, e := range resp.Events {
					if !yield(e) {
						return
					}
				}
			case <-time.After(30 * time.Second):
				t.Error("no event for 30 s")
				return
			}
		}
	}
}

// D1: of those who delete or update one version at once, one succeeds. The others find nothing if it was deleted, as with etcd: what
// is left of a deleted key in the store must not be taken for an empty object, which admission would then be asked about.
func TestOneOfSeveralWritersOfAVersionSucceeds(t *testing.T) {
	onEach(t, testOneOfSeveralWritersOfAVersionSucceeds)
}

func testOneOfSeveralWritersOfAVersionSucceeds(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client().Kubernetes
	const rounds, writers = 200, 4
	for round := range rounds {
		key := fmt.Sprintf("/registry/pods/default/p%d", round)
		made := create(t, s, key, "1")
		var writing sync.WaitGroup
		var succeeded atomic.Int64
		begin := make(chan struct{})
		for writer := range writers {
			writing.Go(func() {
				<-begin
				if writer == 0 {
					put, err := c.OptimisticPut(t.Context(), key, []byte("2"), made, kubernetes.PutOptions{GetOnFailure: true})
					if err != nil || !put.Succeeded && put.KV != nil && len(put.KV.Value) == 0 {
						t.Errorf("round %d: an update that comes too late gets %+v, %v", round, put, err)
					} else if put.Succeeded {
						succeeded.Add(1)
					}
					return
				}
				deleted, err := c.OptimisticDelete(t.Context(), key, made, kubernetes.DeleteOptions{GetOnFailure: true})
				if err != nil || !deleted.Succeeded && deleted.KV != nil && len(deleted.KV.Value) == 0 {
					t.Errorf("round %d: a deletion that comes too late gets %+v, %v", round, deleted, err)
				} else if deleted.Succeeded {
					succeeded.Add(1)
				}
			})
		}
		close(begin)
		if writing.Wait(); succeeded.Load() != 1 {
			t.Errorf("round %d: %d of %d writers succeeded", round, succeeded.Load(), writers)
		}
	}
}
