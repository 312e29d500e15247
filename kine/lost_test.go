// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-dev/berth/kine"
)

// ledger records acknowledged writes, by their keys.
type ledger struct {
	mu    sync.Mutex
	acked map[string]int64
	fails int
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

func (l *ledger) failed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fails
}

// write creates keys, each once, until stop is called.
func (l *ledger) write(t *testing.T, s *kine.Store, writers int) (stop func()) {
	t.Helper()
	ended := make(chan struct{})
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				key := fmt.Sprintf("/registry/child/%d-%d", w, i)
				resp, err := s.Client().Kubernetes.OptimisticPut(context.Background(), key, childValue(key), 0, kubernetes.PutOptions{})
				l.mu.Lock()
				if err == nil && resp.Succeeded {
					l.acked[key] = resp.Revision
				} else {
					l.fails++
				}
				l.mu.Unlock()
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(ended)
		writing.Wait()
	})
	t.Cleanup(stop) // if the test fails before, or tests that come later are slow
	return stop
}

// D1, D4: the server of the database is killed under load, and started again.
func TestNoAcknowledgedWriteIsLostToAServersRestart(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		s := p.open(t)
		watch := s.Client().Watch(t.Context(), "/registry/child/", clientv3.WithPrefix())
		l := &ledger{acked: map[string]int64{}}
		stop := l.write(t, s, 8)
		for range 3 {
			n, fails := l.count(), l.failed()
			until(t, func() bool { return l.count() > n+200 })
			p.runs.Kill()
			until(t, func() bool { return l.failed() > fails })
			if err := p.runs.Start(); err != nil {
				t.Fatal(err)
			}
			n = l.count()
			until(t, func() bool { return l.count() > n })
		}
		stop()
		mustBeDelivered(t, s, l, watch)
		before := stats(t, s).UsedBytes
		closeStore(t, s)
		mustHold(t, p, l.acked)
		if after := stats(t, p.open(t)).UsedBytes; after != before {
			t.Errorf("the store has %d bytes, and counted %d", after, before)
		}
	})
}

// mustBeDelivered fails unless a watch that began before all writes of a ledger delivers those that were acknowledged.
func mustBeDelivered(t *testing.T, s *kine.Store, l *ledger, watch clientv3.WatchChan) {
	t.Helper()
	sentinel := create(t, s, "/registry/child/last", string(childValue("/registry/child/last")))

	seen, last := map[string]int64{}, int64(0)
	for e := range events(t, watch) {
		if e.Kv.ModRevision <= last {
			t.Errorf("revision %d was delivered after %d", e.Kv.ModRevision, last)
		}
		last = e.Kv.ModRevision
		seen[string(e.Kv.Key)] = last
		if last == sentinel {
			break
		}
	}
	for key, rev := range l.acked {
		if seen[key] != rev {
			t.Errorf("%s was acknowledged at %d, and delivered at %d (0: not at all)", key, rev, seen[key])
		}
	}
	t.Logf("%d acknowledged writes, %d failed, %d delivered", len(l.acked), l.fails, len(seen))
}

// A database that doesn't respond fails its own store only.
func TestAServerThatHangsHoldsUpOnlyItsStores(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		s, other := p.open(t), openNew(t)
		create(t, s, "/registry/a", "1")
		p.runs.Pause()
		resume := sync.OnceFunc(p.runs.Continue)
		defer resume()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if resp, err := s.Client().Kubernetes.OptimisticPut(ctx, "/registry/b", []byte("1"), 0, kubernetes.PutOptions{}); err == nil {
			t.Errorf("put in a database that hangs: %+v", resp)
		}
		create(t, other, "/registry/a", "1")
		resume()
		until(t, func() bool {
			resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/c", []byte("1"), 0, kubernetes.PutOptions{})
			return err == nil && resp.Succeeded
		})
	})
}

// While the server is down, reads and writes fail at once, with an error that says to try again.
func TestAStoreWithoutItsServerIsUnavailable(t *testing.T) {
	onServers(t, func(t *testing.T, p place) {
		s := p.open(t)
		rev := create(t, s, "/registry/a", "1")
		p.runs.Kill()
		_, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/a", []byte("2"), rev, kubernetes.PutOptions{GetOnFailure: true})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("update = %v, want it unavailable", err)
		}
		if _, err := s.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{}); status.Code(err) != codes.Unavailable {
			t.Errorf("get = %v, want it unavailable", err)
		}
		if _, err := kine.Open(t.Context(), p.elsewhere(t).options(kine.Options{})); err == nil || !strings.Contains(err.Error(), "database") {
			t.Errorf("open = %v, want an error that names the database", err)
		}
		if err := p.runs.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool {
			resp, err := s.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{})
			return err == nil && resp.KV != nil
		})
	})
}
