// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/internal/testservers"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

func TestMain(m *testing.M) {
	if testservers.Serve() {
		return
	}
	code := m.Run()
	testservers.Stop()
	os.Exit(code)
}

// newPodOf is what the pod of a space has, with a database of a server and an ID of its store.
func newPodOf(t *testing.T, server *kine.Server, id []byte) *serverStore {
	t.Helper()
	s := &serverStore{space: "demo", dir: t.TempDir(), file: filepath.Join(t.TempDir(), ServerFile), asks: true}
	data, err := EncodeServer(server)
	if err == nil {
		err = errors.Join(pki.WriteFile(s.file, data), pki.WriteFile(filepath.Join(s.dir, "store.id"), id))
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// open opens the store as a start of the space does.
func (s *serverStore) open(t *testing.T) (*kine.Store, error) {
	t.Helper()
	server, err := s.toOpen(t.Context())
	if err != nil {
		return nil, err
	}
	store, err := kine.Open(t.Context(), kine.Options{Name: s.space, Path: filepath.Join(s.dir, "cache.db"), Server: server})
	if err == nil {
		err = spacefiles.WriteEpoch(s.dir, store.Epoch())
	}
	s.woken(s.space, 0, err)
	return store, err
}

// T8, D4: of two pods of a space, the one that the platform has allowed to open the store has it. The other one, which may be on a node that was
// cut off, doesn't take it back by itself, neither when it starts again nor when the space wakes.
func TestAPodThatWasReplacedDoesNotTakeTheStoreBack(t *testing.T) {
	server := &kine.Server{Type: kine.Etcd, DSN: testservers.Etcd(t).Database(t)}
	id := []byte(strings.Repeat("i", 32))
	first := newPodOf(t, server, id)
	if _, err := (serverSnapshots{noSpaces{}, first}).Snapshot(t.Context(), "demo", filepath.Join(t.TempDir(), "copy.db")); err == nil {
		t.Error("an empty database is copied")
	}
	store, err := first.open(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := (serverSnapshots{noSpaces{}, first}).Snapshot(t.Context(), "demo", filepath.Join(t.TempDir(), "copy.db")); err != nil {
		t.Errorf("a space that sleeps is not copied: %v", err)
	}
	store, err = first.open(t) // nobody else has opened it
	if err != nil {
		t.Fatal(err)
	}

	second := newPodOf(t, server, id)
	if _, err := second.open(t); err == nil || !second.waits.Load() {
		t.Fatalf("a pod that the platform doesn't know of opens the store: %v", err)
	}
	second.allow()
	other, err := second.open(t)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if second.allowed.Load() || second.waits.Load() {
		t.Error("it may still open the store whatever happens")
	}
	if _, err := first.open(t); err == nil || !strings.Contains(err.Error(), "when Berth allows it") || !first.waits.Load() {
		t.Errorf("the pod before takes the store back: %v", err)
	}
	if err := other.CheckFiles(t.Context(), other.Epoch()); err != nil {
		t.Errorf("the second pod has lost the store: %v", err)
	}
	if err := store.Close(); err != nil {
		t.Logf("the store that was taken over: %v", err)
	}
	first.allow()
	if store, err := first.open(t); err != nil {
		t.Errorf("it doesn't open the store when it is allowed to: %v", err)
	} else if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// S3: a file that can't be read is not quoted, because it has a password.
func TestADamagedFileIsNotQuoted(t *testing.T) {
	s := newPodOf(t, &kine.Server{Type: kine.Etcd}, []byte(strings.Repeat("i", 32)))
	if err := os.WriteFile(s.file, []byte(`{"dsn": hunter2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.toOpen(t.Context()); !errors.Is(err, kine.ErrServer) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
}

// noSpaces are spaces that sleep.
type noSpaces struct{ snapshot.Spaces }

func (noSpaces) Snapshot(context.Context, string, string) (bool, error) {
	return false, snapshot.ErrAsleep
}
