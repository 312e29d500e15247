// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/berth-dev/berth/kine"
)

// clients are the two ways to a store; they must not differ in what both can do.
func clients(t *testing.T, s *kine.Store) map[string]*clientv3.Client {
	t.Helper()
	return map[string]*clientv3.Client{"InProcess": s.Client().Client, "Dialed": dialed(t, s)}
}

func dialed(t *testing.T, s *kine.Store) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{"http://store"},
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return s.DialContext(ctx, "tcp", addr)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestAWatchTellsEachChangeWithWhatWasBefore(t *testing.T) {
	onEach(t, testAWatchTellsEachChangeWithWhatWasBefore)
}

func testAWatchTellsEachChangeWithWhatWasBefore(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client()
	prefix := "/registry/a/"
	first := create(t, s, prefix+"a", "1")
	second := put(t, s, prefix+"a", "2", first)
	now := c.Watch(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	if created := <-now; !created.Created {
		t.Fatalf("watch: %+v", created)
	}
	past := c.Watch(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(second))
	other := create(t, s, "/registry/a0", "not below the prefix")
	third := create(t, s, prefix+"b", "3")
	fourth := remove(t, s, prefix+"a", second)

	after := []string{
		fmt.Sprintf("PUT %sb 3 at %d before ", prefix, third),
		fmt.Sprintf("DELETE %sa  at %d before 2", prefix, fourth),
	}
	if diff := cmp.Diff(after, take(t, now, 2)); diff != "" {
		t.Errorf("watch from now on: %s", diff)
	}
	before := fmt.Sprintf("PUT %sa 2 at %d before 1", prefix, second)
	if diff := cmp.Diff(append([]string{before}, after...), take(t, past, 3)); diff != "" {
		t.Errorf("watch from %d: %s", second, diff)
	}
	if other > third {
		t.Errorf("revisions %d, %d", other, third)
	}
}

func take(t *testing.T, watch clientv3.WatchChan, n int) []string {
	t.Helper()
	var out []string
	for e := range events(t, watch) {
		prev := ""
		if e.PrevKv != nil {
			prev = string(e.PrevKv.Value)
		}
		out = append(out, fmt.Sprintf("%s %s %s at %d before %s", e.Type, e.Kv.Key, e.Kv.Value, e.Kv.ModRevision, prev))
		if len(out) == n {
			break
		}
	}
	return out
}

// The API server's watch cache serves consistent lists only with this: it asks how far its watch has come.
func TestAskedForProgressAWatchTellsTheRevisionItHasReached(t *testing.T) {
	onEach(t, testAskedForProgressAWatchTellsTheRevisionItHasReached)
}

func testAskedForProgressAWatchTellsTheRevisionItHasReached(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client()
	ctx := clientv3.WithRequireLeader(t.Context())
	watch := c.Watch(ctx, "/registry/a/", clientv3.WithPrefix(), clientv3.WithProgressNotify(), clientv3.WithCreatedNotify())
	<-watch
	for i := range 3 {
		rev := create(t, s, fmt.Sprintf("/registry/other/%d", i), "1")
		if err := c.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		deadline := time.After(20 * time.Second)
		for reached := int64(0); reached < rev; {
			select {
			case resp := <-watch:
				if len(resp.Events) != 0 || resp.Header.Revision > rev {
					t.Fatalf("%+v", resp)
				}
				reached = resp.Header.Revision
			case <-deadline:
				t.Fatalf("no progress to %d", rev)
			}
		}
	}
}

// Else the revision that the API server's watch cache is at would be compacted in time, while others' keys are written.
func TestAWatchThatWantsProgressIsToldInAWhileWithoutAsking(t *testing.T) {
	s := openNew(t)
	wants := s.Client().Watch(t.Context(), "/registry/a/", clientv3.WithPrefix(), clientv3.WithProgressNotify())
	not := s.Client().Watch(t.Context(), "/registry/a/", clientv3.WithPrefix())
	rev := create(t, s, "/registry/b/1", "1")
	until(t, func() bool {
		s.TellProgress()
		select {
		case resp := <-wants:
			if !resp.IsProgressNotify() || resp.Header.Revision > rev {
				t.Fatalf("%+v", resp)
			}
			return resp.Header.Revision == rev
		default:
			return false
		}
	})
	s.TellProgress()
	select {
	case resp := <-wants:
		t.Errorf("told again: %+v", resp)
	case resp := <-not:
		t.Errorf("told without having asked: %+v", resp)
	default:
	}
}

func TestACancelledWatchEndsAndOthersGoOn(t *testing.T) {
	onEach(t, testACancelledWatchEndsAndOthersGoOn)
}

func testACancelledWatchEndsAndOthersGoOn(t *testing.T, p place) {
	s := p.open(t)
	c := s.Client()
	prefix := "/registry/a/"
	stays := c.Watch(t.Context(), prefix, clientv3.WithPrefix())
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		goes := c.Watch(ctx, prefix, clientv3.WithPrefix())
		rev := create(t, s, fmt.Sprintf("%s%d", prefix, i), "1")
		cancel()
		for range goes { // to its end
		}
		for e := range events(t, stays) {
			if e.Kv.ModRevision == rev {
				break
			}
		}
	}
}

func TestADialedConnectionEndsWithTheStore(t *testing.T) {
	onEach(t, testADialedConnectionEndsWithTheStore)
}

func testADialedConnectionEndsWithTheStore(t *testing.T, p place) {
	s := p.open(t)
	c := dialed(t, s)
	if _, err := c.Status(t.Context(), "http://store"); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Get(ctx, "/registry/a"); err == nil {
		t.Error("get on a closed store succeeded")
	}
}

// The API server reads the version and the size from there.
func TestAStoreSaysWhichEtcdItStandsInFor(t *testing.T) {
	onEach(t, testAStoreSaysWhichEtcdItStandsInFor)
}

func testAStoreSaysWhichEtcdItStandsInFor(t *testing.T, p place) {
	s := p.open(t)
	for name, c := range clients(t, s) {
		status, err := c.Status(t.Context(), "http://store")
		if err != nil || status.Version != "3.6.11" || status.DbSize == 0 {
			t.Errorf("%s: %+v, %v", name, status, err)
		}
	}
	got, err := s.Client().Kubernetes.Get(t.Context(), "/registry/health", kubernetes.GetOptions{})
	if err != nil || got.KV == nil {
		t.Errorf("health key: %+v, %v", got, err)
	}
}
