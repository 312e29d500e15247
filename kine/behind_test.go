// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A client that doesn't read costs the store a bounded piece of memory, and itself nothing but time.
func TestAWatchThatFellBehindMissesNothing(t *testing.T) {
	onEach(t, testAWatchThatFellBehindMissesNothing)
}

func testAWatchThatFellBehindMissesNothing(t *testing.T, p place) {
	s := p.open(t)
	slow := s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix())
	const writers, writes = 8, 60
	value := strings.Repeat("x", 10<<10)
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range writes {
				create(t, s, fmt.Sprintf("/registry/%d/%d", w, i), value)
			}
		})
	}
	writing.Wait() // nearly five times what the watch may have in memory
	more := make(chan int64)
	seen, last := 0, int64(0)
	for e := range events(t, slow) {
		if e.Kv.ModRevision <= last || string(e.Kv.Value) != value {
			t.Fatalf("event of %s at %d after %d", e.Kv.Key, e.Kv.ModRevision, last)
		}
		last = e.Kv.ModRevision
		if seen++; seen == writers*writes/2 {
			go func() { more <- create(t, s, "/registry/more", value) }() // while it catches up
		}
		if seen == writers*writes+1 {
			break
		}
	}
	if rev := <-more; rev != last {
		t.Errorf("the last event is of %d, want %d", last, rev)
	}
}

func TestAWatchThatFellBehindIsToldOfACompaction(t *testing.T) {
	onEach(t, testAWatchThatFellBehindIsToldOfACompaction)
}

func testAWatchThatFellBehindIsToldOfACompaction(t *testing.T, p place) {
	s := p.open(t)
	slow := s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix())
	first := create(t, s, "/registry/a", "0")
	rev, value := first, strings.Repeat("x", 6<<10)
	for range 1500 { // the last 1000 are always kept
		rev = put(t, s, "/registry/a", value, rev)
	}
	if _, err := s.Client().Compact(t.Context(), first+450); err != nil {
		t.Fatal(err)
	}
	for resp := range slow {
		if err := resp.Err(); err != nil {
			if !errors.Is(err, rpctypes.ErrCompacted) || resp.CompactRevision != first+450 {
				t.Errorf("%+v, %v", resp, err)
			}
			if _, open := <-slow; open {
				t.Error("the watch goes on after its end")
			}
			return
		}
		for _, e := range resp.Events {
			if e.Kv.ModRevision > first+450 {
				t.Fatalf("event of %d, across a gap", e.Kv.ModRevision)
			}
		}
	}
	t.Error("the watch ended without a word")
}

// Whenever a watch begins, and however its client dawdles, it tells each change of its keys once, in order.
func TestWatchesThatBeginAnywhereAndDawdleTellEachChangeOnce(t *testing.T) {
	onEach(t, testWatchesThatBeginAnywhereAndDawdleTellEachChangeOnce)
}

func testWatchesThatBeginAnywhereAndDawdleTellEachChangeOnce(t *testing.T, p place) {
	s := p.open(t)
	const writers, writes, watchers = 4, 150, 12
	value := strings.Repeat("x", 20<<10) // some fifty are what one read of the log takes
	var mu sync.Mutex
	revs := map[string][]int64{} // of each writer's changes
	var writing, watching sync.WaitGroup
	begin := make(chan int, writers*writes)
	for w := range writers {
		prefix := fmt.Sprintf("/registry/%d/", w)
		writing.Go(func() {
			for i := range writes {
				rev := create(t, s, prefix+fmt.Sprint(i), value)
				mu.Lock()
				revs[prefix] = append(revs[prefix], rev)
				mu.Unlock()
				begin <- i
			}
		})
	}
	type told struct {
		prefix string
		from   int64
		revs   []int64
	}
	results := make([]told, watchers)
	for i := range results {
		r := &results[i]
		r.prefix = fmt.Sprintf("/registry/%d/", i%writers)
		for range writers * writes / watchers / 2 { // they begin while half is written
			<-begin
		}
		r.from = 1 + rand.Int64N(mustRevision(t, s)+5)
		watch := s.Client().Watch(t.Context(), r.prefix, clientv3.WithPrefix(), clientv3.WithRev(r.from))
		watching.Go(func() {
			if i%3 == 0 {
				writing.Wait() // by then much has gathered
			}
			for e := range events(t, watch) {
				r.revs = append(r.revs, e.Kv.ModRevision)
				if string(e.Kv.Key) == r.prefix+"end" {
					return
				}
			}
		})
	}
	writing.Wait()
	for prefix := range revs {
		revs[prefix] = append(revs[prefix], create(t, s, prefix+"end", "1"))
	}
	watching.Wait()
	for i, r := range results {
		want := slices.DeleteFunc(slices.Clone(revs[r.prefix]), func(rev int64) bool { return rev < r.from })
		if diff := cmp.Diff(want, r.revs); diff != "" {
			t.Errorf("watch %d of %s from %d: %s", i, r.prefix, r.from, diff)
		}
	}
}
