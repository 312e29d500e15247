// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
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

// D1: an acknowledged write survives kill -9. Some rounds are killed while the store opens or is made; after some the
// next process finds the log as the killed one left it.
func TestNoAcknowledgedWriteIsLostToAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	acked := map[string]int64{}
	for round, end := 0, time.Now().Add(10*time.Second); round < 14 && time.Now().Before(end); round++ {
		c := startChild(t, path)
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
			var n int64
			if _, err := fmt.Sscan(rev, &n); err != nil {
				t.Fatalf("child said %q", c.out.Text())
			}
			acked[key] = n
		}
		timer.Stop()
		_ = c.cmd.Wait()
		if round%3 == 2 {
			mustHold(t, path, acked)
		}
	}
	mustHold(t, path, acked)
	if len(acked) < 100 {
		t.Errorf("only %d writes in all rounds: the test shows nothing", len(acked))
	}
	t.Logf("%d acknowledged writes", len(acked))
}

func mustHold(t *testing.T, path string, acked map[string]int64) {
	t.Helper()
	s, err := kine.Open(t.Context(), kine.Options{Path: path})
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
	c := startChild(t, path)
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
