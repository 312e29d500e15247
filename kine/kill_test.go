// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

// D1, D2, D3: an acknowledged write survives kill -9, while the store is snapshotted, compacted and let go of, too. Some
// rounds are killed while the store opens or is made; after some the next process finds the log as the killed one left it.
// What is where a snapshot should be is a whole one.
func TestNoAcknowledgedWriteIsLostToAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	acked, snapshots := map[string]int64{}, 0
	for round, end := 0, time.Now().Add(10*time.Second); round < 14 && time.Now().Before(end); round++ {
		c := startChild(t, place{path: path})
		after := time.Duration(rand.Int64N(int64(700 * time.Millisecond)))
		if round%4 == 0 {
			after = time.Duration(rand.Int64N(int64(60 * time.Millisecond))) // about when it opens
		}
		timer := time.AfterFunc(after, func() { _ = c.cmd.Process.Kill() })
		for c.out.Scan() {
			key, rev, ok := strings.Cut(c.out.Text(), " ")
			if !ok {
				continue
			}
			if key == "snapshot" {
				snapshots++
				continue
			}
			var n int64
			if _, err := fmt.Sscan(rev, &n); err != nil {
				t.Fatalf("child said %q", c.out.Text())
			}
			acked[key] = n
		}
		timer.Stop()
		_ = c.cmd.Wait()
		if round%3 == 2 {
			mustHold(t, place{path: path}, acked)
		}
	}
	mustHold(t, place{path: path}, acked)
	if len(acked) < 100 || snapshots < 3 {
		t.Errorf("only %d writes and %d snapshots in all rounds: the test shows nothing", len(acked), snapshots)
	}
	t.Logf("%d acknowledged writes, %d snapshots", len(acked), snapshots)

	whole := 0
	for name := range contents(t, filepath.Dir(path)) {
		if !strings.Contains(name, ".snapshot-") || strings.Contains(name, ".new") {
			continue
		}
		restored := filepath.Join(t.TempDir(), name)
		mustRestore(t, filepath.Join(filepath.Dir(path), name), restored)
		mustHold(t, place{path: restored}, nil)
		whole++
	}
	if whole == 0 {
		t.Error("no snapshot is left: the test shows nothing of them")
	}
}

func mustHold(t *testing.T, p place, acked map[string]int64) {
	t.Helper()
	s, err := kine.Open(t.Context(), p.options(kine.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	list, err := s.Client().Kubernetes.List(t.Context(), "/registry/child/", kubernetes.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int64{}
	for _, kv := range list.Kvs {
		if string(kv.Value) != string(childValue(string(kv.Key))) {
			t.Errorf("%s holds another value than was written", kv.Key)
		}
		found[string(kv.Key)] = kv.ModRevision
	}
	for key, rev := range acked {
		if found[key] != rev {
			t.Errorf("%s was acknowledged at %d, and is found at %d (0: not at all)", key, rev, found[key])
		}
		if rev > list.Revision {
			t.Errorf("revision is %d, after %d was acknowledged", list.Revision, rev)
		}
	}
}

func TestAStoreIsOpenOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	c := startChild(t, place{path: path})
	if !c.out.Scan() || c.out.Text() != "open" {
		t.Fatalf("child said %q", c.out.Text())
	}
	if _, err := kine.Open(t.Context(), kine.Options{Path: path}); !errors.Is(err, kine.ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("open beside another process = %v, want %v with the path", err, kine.ErrInUse)
	}
	c.kill()
	s := openAt(t, path) // the kill freed it
	if _, err := kine.Open(t.Context(), kine.Options{Path: path}); !errors.Is(err, kine.ErrInUse) {
		t.Errorf("second open in this process = %v, want %v", err, kine.ErrInUse)
	}
	create(t, s, "/registry/a", "1") // unharmed by that
	closeStore(t, s)
	if v := value(t, openAt(t, path), "/registry/a"); v != "1" {
		t.Errorf("value after all = %q", v)
	}
}

// SQLite's own lock is taken by whoever looks into the file by hand.
func TestAWriteWaitsForAnotherConnectionThatLocksTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openAt(t, path)
	create(t, s, "/registry/a", "1")
	other, err := sql.Open("sqlite3", "file:"+path+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan int64, 1)
	go func() { written <- create(t, s, "/registry/b", "1") }()
	for range 20 { // reads don't wait
		if v := value(t, s, "/registry/a"); v != "1" {
			t.Errorf("value = %q", v)
		}
	}
	select {
	case <-written:
		t.Error("a write went past a lock")
	default:
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if rev := <-written; rev == 0 {
		t.Error("the write that waited was lost")
	}
}
