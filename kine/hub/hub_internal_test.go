// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// panicsTimeout bounds every wait of these tests.
const panicsTimeout = 20 * time.Second

// panickingLog is a log of which one revision can't be handed on.
type panickingLog struct {
	revision atomic.Int64 // the last one
	broken   int64
	reading  bool // it panics when it is read, else when it is handed on
	panics   atomic.Int64
}

func (l *panickingLog) changes(_ context.Context, _, _ string, after int64) ([]*clientv3.Event, bool, error) {
	var events []*clientv3.Event
	for rev := after + 1; rev <= l.revision.Load(); rev++ {
		e := &clientv3.Event{Kv: &mvccpb.KeyValue{Key: []byte("/registry/pods/a"), ModRevision: rev}}
		if rev == l.broken {
			l.panics.Add(1)
			if l.reading {
				panic("broken row")
			}
			e.Kv = nil
		}
		events = append(events, e)
	}
	return events, false, nil
}

// L3 (S18): a change by which the feed panics ends the watches that are to get it, once, so that their clients list anew.
// It does not come again and again, and what is written later comes to all that watch then.
func TestHostileAChangeThatPanicsEndsItsWatchesOnce(t *testing.T) {
	for name, reading := range map[string]bool{"handed on": false, "read": true} {
		t.Run(name, func(t *testing.T) {
			l := &panickingLog{broken: 2, reading: reading}
			l.revision.Store(1)
			ctx, cancel := context.WithCancel(t.Context())
			h := New(ctx, 1, l.changes, l.revision.Load)
			wrote := make(chan struct{}, 1)
			var running sync.WaitGroup
			running.Go(func() { h.Run(wrote) })
			defer func() {
				h.Close()
				cancel()
				running.Wait()
			}()
			write := func() {
				l.revision.Add(2) // at once, so that the broken one is not the last
				select {
				case wrote <- struct{}{}:
				default:
				}
			}
			watchFrom := func(rev int64) *Watch {
				w := &Watch{Key: "/registry/", End: "/registry0", From: rev}
				h.Add(ctx, w, false)
				return w
			}
			next := func(w *Watch) (clientv3.WatchResponse, bool) {
				t.Helper()
				select {
				case r, ok := <-w.Out:
					return r, ok
				case <-time.After(panicsTimeout):
					t.Fatal("nothing comes")
					return clientv3.WatchResponse{}, false
				}
			}
			first, second := watchFrom(2), watchFrom(2)
			write()
			mustEnd := func(w *Watch) {
				t.Helper()
				if r, ok := next(w); !ok || !r.Canceled || r.CompactRevision <= l.broken {
					t.Errorf("got %+v, %t, want that the changes are compacted", r, ok)
				}
				if _, ok := next(w); ok {
					t.Error("the watch goes on")
				}
			}
			mustEnd(first)
			mustEnd(second)
			const again = 2 * logReaders
			for range again { // these read the log for themselves
				mustEnd(watchFrom(2))
			}
			after := watchFrom(4)
			write()
			if r, ok := next(after); !ok || len(r.Events) != 2 || r.Events[0].Kv.ModRevision != 4 {
				t.Errorf("then got %+v, %t", r, ok)
			}
			if n := l.panics.Load(); n != 1+again {
				t.Errorf("%d panics, want one of the feed and one of each watch that reads the log", n)
			}
		})
	}
}
