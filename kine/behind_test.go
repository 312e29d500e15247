// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A client that doesn't read costs the store a bounded piece of memory, and itself nothing but time.
func TestAWatchThatFellBehindMissesNothing(t *testing.T) {
	s := openNew(t)
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
	s := openNew(t)
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
