// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/kine"
)

func TestCloseEndsWatchesAndCallsAndLeavesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openAt(t, path)
	var running sync.WaitGroup
	for i := range 20 {
		watch := s.Client().Watch(t.Context(), fmt.Sprintf("/registry/%d", i), clientv3.WithPrefix(), clientv3.WithProgressNotify())
		running.Go(func() {
			for range watch {
			}
		})
	}
	acked := make([]int, 20)
	for w := range acked {
		running.Go(func() {
			for {
				resp, err := s.Client().Kubernetes.OptimisticPut(context.Background(), fmt.Sprintf("/registry/%d/%d", w, acked[w]), []byte("1"), 0, kubernetes.PutOptions{})
				if err != nil || !resp.Succeeded {
					return
				}
				acked[w]++
			}
		})
		running.Go(func() {
			for {
				if _, err := s.Client().Kubernetes.List(context.Background(), "/registry/", kubernetes.ListOptions{}); err != nil {
					return
				}
			}
		})
	}
	until(t, func() bool { return sizeOf(path+"-wal") > 1<<20 })
	var closing sync.WaitGroup
	for range 3 {
		closing.Go(func() { closeStore(t, s) })
	}
	closing.Wait()
	running.Wait() // each watch and call came to an end
	for w := range s.Client().Watch(t.Context(), "/registry/") {
		if w.Err() == nil {
			t.Errorf("watch after close: %+v", w)
		}
	}
	if _, err := s.Client().Kubernetes.Get(t.Context(), "/registry/a", kubernetes.GetOptions{}); err == nil {
		t.Error("get after close succeeded")
	}
	if _, err := s.DialContext(t.Context(), "tcp", "store"); err == nil {
		t.Error("dial after close succeeded")
	}
	if _, err := s.Stats(t.Context()); err == nil {
		t.Error("stats after close succeeded")
	}
	for _, suffix := range []string{"-wal", "-shm", "-journal", ".new"} {
		if _, err := os.Stat(path + suffix); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path+suffix, err)
		}
	}
	s = openAt(t, path)
	for w, n := range acked {
		for i := range n {
			if value(t, s, fmt.Sprintf("/registry/%d/%d", w, i)) != "1" {
				t.Fatalf("write %d of writer %d was acknowledged and is gone", i, w)
			}
		}
	}
}

// Nobody waits for a watcher that doesn't read: not writers, not other watchers, not Close.
func TestAWatcherThatDoesNotReadHoldsNobodyUp(t *testing.T) {
	s := openNew(t)
	for range 10 {
		_ = s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix())
	}
	watch := s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix())
	go func() {
		for i := range 2000 {
			create(t, s, fmt.Sprintf("/registry/%d", i), strings.Repeat("x", 1000))
		}
	}()
	seen := 0
	for range events(t, watch) {
		if seen++; seen == 2000 {
			break
		}
	}
	start := time.Now()
	closeStore(t, s)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("close took %s", took)
	}
}

func TestStoresLeaveNothingBehindInTheProcess(t *testing.T) {
	dir := t.TempDir()
	before, ignore := openFiles(t), goleak.IgnoreCurrent()
	for round := range 5 {
		var stores []*kine.Store
		for i := range 4 { // several are open at once
			s := openAt(t, filepath.Join(dir, fmt.Sprint(i), "state.db"))
			watch := s.Client().Watch(t.Context(), "/registry/", clientv3.WithPrefix())
			create(t, s, fmt.Sprint("/registry/", round), "x")
			<-watch
			stores = append(stores, s)
		}
		for _, s := range stores {
			closeStore(t, s)
		}
	}
	goleak.VerifyNone(t, ignore)
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were before", after, before)
	}
}

func mustRevision(t *testing.T, s *kine.Store) int64 {
	t.Helper()
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stats.Revision
}

func TestOpenIsBoundByItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
		s, err := kine.Open(ctx, kine.Options{Path: path})
		switch {
		case err == nil:
			<-ctx.Done()
			if create(t, s, fmt.Sprintf("/registry/%d", i), "1") == 0 {
				t.Error("the store ended with the context of its opening")
			}
			closeStore(t, s)
		case ctx.Err() == nil:
			t.Errorf("open = %v", err)
		}
		cancel()
	}
	openAt(t, path) // whatever was left half-way
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no list of open files on this system")
	}
	return len(entries)
}

func sizeOf(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// until polls a condition for a generous while.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to be in three minutes")
		}
	}
}
