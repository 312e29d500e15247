// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

func TestAStoreKeepsItsDataAndRevisionWhenReopened(t *testing.T) {
	onEach(t, testAStoreKeepsItsDataAndRevisionWhenReopened)
}

func testAStoreKeepsItsDataAndRevisionWhenReopened(t *testing.T, p place) {
	var last int64
	for i := range 5 {
		s := p.open(t)
		if i > 0 {
			if v := value(t, s, fmt.Sprintf("/registry/%d", i-1)); v != "1" {
				t.Errorf("value written before is %q", v)
			}
			if rev := mustRevision(t, s); rev != last {
				t.Errorf("revision is %d, was %d", rev, last)
			}
		}
		rev := create(t, s, fmt.Sprintf("/registry/%d", i), "1")
		if rev <= last {
			t.Errorf("revision %d after %d", rev, last)
		}
		last = rev
		closeStore(t, s)
	}
}

func TestAStoreIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenants", "a", "state.db")
	s := openAt(t, path)
	create(t, s, "/registry/secrets/a", "1")
	for name, want := range map[string]os.FileMode{
		path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600, path + ".lock": 0o600, filepath.Dir(path): 0o700 | os.ModeDir,
	} {
		fi, err := os.Stat(name)
		if err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
	closeStore(t, s)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	openAt(t, path)
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

func TestAnyPathNamesTheFileItSays(t *testing.T) {
	cases := map[string]string{
		"what?is":                          "begins a URI's parameters",
		"100%":                             "begins an escape in a URI",
		"%41":                              "is an escape in a URI",
		"a#b":                              "begins a URI's fragment",
		"a b":                              "is none in a URI",
		"a&mode=memory":                    "adds a parameter",
		"file:a":                           "looks like a URI",
		":memory:":                         "is SQLite's word for no file",
		"ünï\xff\ncode":                    "is not plain text",
		"_kine_disable_wal_autocheckpoint": "is one of kine's switches",
		"x":                                "is plain",
	}
	for name, why := range cases {
		t.Run(why, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name, name)
			s := openAt(t, path)
			create(t, s, "/registry/a", "1")
			closeStore(t, s)
			entries, err := os.ReadDir(filepath.Dir(path))
			if err != nil || len(entries) != 2 || entries[0].Name() != name || entries[1].Name() != name+".lock" {
				t.Errorf("directory holds %v, %v", entries, err)
			}
			if v := value(t, openAt(t, path), "/registry/a"); v != "1" {
				t.Errorf("value = %q", v)
			}
		})
	}
	for _, path := range []string{"", "a\x00b"} {
		if _, err := kine.Open(t.Context(), kine.Options{Path: path}); err == nil {
			t.Errorf("opened %q", path)
		}
	}
}

func TestACreationThatWasKilledIsDoneAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for _, suffix := range []string{".new", ".new-wal", ".new-shm", ".new-journal"} {
		write(t, path+suffix, []byte("half of it"))
	}
	create(t, openAt(t, path), "/registry/a", "1")
	if left, err := filepath.Glob(path + ".new*"); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// D1: a commit is on disk before it is acknowledged. (That it is can't be shown without cutting the power.)
func TestACommitIsSyncedBeforeItIsAcknowledged(t *testing.T) {
	s := openNew(t)
	for name, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "auto_vacuum": "2"} {
		if got, err := s.Pragma(t.Context(), name); err != nil || got != want {
			t.Errorf("%s = %s, %v; want %s", name, got, err, want)
		}
	}
}

// D3: a full disk refuses writes with a clear error, and the store recovers by itself.
func TestAFullDiskRefusesWritesUntilSpaceIsFreed(t *testing.T) {
	s := openNew(t)
	c := s.Client().Kubernetes
	kept := create(t, s, "/registry/kept", "1")
	if err := s.LimitPages(t.Context(), 40); err != nil {
		t.Fatal(err)
	}
	large := []byte(strings.Repeat("x", 300<<10))
	if _, err := c.OptimisticPut(t.Context(), "/registry/a", large, 0, kubernetes.PutOptions{}); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("create = %v, want %v", err, rpctypes.ErrNoSpace)
	}
	if resp, err := c.OptimisticPut(t.Context(), "/registry/kept", large, kept, kubernetes.PutOptions{GetOnFailure: true}); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("update = %+v, %v, want %v: a conflict would be tried again for ever", resp, err, rpctypes.ErrNoSpace)
	}
	if v := value(t, s, "/registry/kept"); v != "1" {
		t.Errorf("value = %q", v)
	}
	if err := s.LimitPages(t.Context(), 10000); err != nil {
		t.Fatal(err)
	}
	put(t, s, "/registry/kept", string(large), kept)
}

func TestStoresTouchNothingThatTheProcessShares(t *testing.T) {
	create(t, openNew(t), "/registry/a", "1")
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.GetName(), "kine") {
			t.Errorf("metric %s is registered for the process", f.GetName())
		}
	}
	// kine logs whole requests, secrets included, when they fail.
	if logrus.IsLevelEnabled(logrus.ErrorLevel) {
		t.Error("kine logs to the process's standard error")
	}
}
