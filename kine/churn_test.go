// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berth-dev/berth/kine"
)

// S7: watches that come and go in the midst of writes never bring the others to
// a stop. Client and server once waited for each other, each to take a
// cancellation, and every cache over the store was stale from then on.
func TestWatchesThatComeAndGoDoNotStopTheOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := kine.Open(ctx, kine.Options{Path: filepath.Join(t.TempDir(), "store.db"), Name: "churn"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := store.Client()
	const writers, writes = 8, 80
	steady := client.Watch(ctx, "/registry/", clientv3.WithPrefix())

	var work sync.WaitGroup
	for i := range writers {
		work.Go(func() {
			for j := range writes {
				key := fmt.Sprintf("/registry/%d/%d", i, j)
				if _, err := client.Put(ctx, key, "v"); err != nil {
					t.Errorf("put %s: %v", key, err)
					return
				}
			}
		})
	}
	done := make(chan struct{})
	for range 8 {
		work.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				// Cancelled while its events are under way.
				brief, end := context.WithCancel(ctx)
				var first clientv3.WatchChan
				for range 4 {
					first = client.Watch(brief, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1))
				}
				select {
				case <-first:
				case <-ctx.Done():
				}
				end()
			}
		})
	}
	for seen := 0; seen < writers*writes; {
		select {
		case r, ok := <-steady:
			if !ok || r.Err() != nil {
				t.Fatalf("the steady watch ended: %v", r.Err())
			}
			seen += len(r.Events)
		case <-ctx.Done():
			close(done)
			t.Fatalf("the steady watch stands still at %d of %d events", seen, writers*writes)
		}
	}
	close(done)
	work.Wait()
}
