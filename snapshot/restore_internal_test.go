// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

// killed makes a store in dir as a kill leaves one that holds key: in its log.
func killed(t *testing.T, dir, key string) {
	t.Helper()
	was := filepath.Join(t.TempDir(), storeFile)
	store, err := kine.Open(t.Context(), kine.Options{Path: was})
	if err != nil {
		t.Fatal(err)
	}
	put, err := store.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte("x"), 0, kubernetes.PutOptions{})
	if err != nil || !put.Succeeded {
		t.Fatal(put, err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(was+suffix, filepath.Join(dir, storeFile+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
}

func holds(t *testing.T, path, key string) bool {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Client().Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{})
	if err = errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	return got.KV != nil
}

// D1, D2: cut off at its last step, when all that can be is undone of the old
// store, a restore leaves that with all that was written to it. Done again, it
// keeps it beside the new one.
func TestARestoreThatIsCutOffLosesNothing(t *testing.T) {
	from, dir := t.TempDir(), t.TempDir()
	killed(t, dir, "/registry/old")
	killed(t, from, "/registry/new")
	if !holds(t, filepath.Join(from, storeFile), "/registry/new") { // it is in order now
		t.Fatal("the new store does not hold what it should")
	}
	fresh, path := filepath.Join(from, storeFile), filepath.Join(dir, storeFile)
	if err := follow(t.Context(), fresh, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fresh, fresh+".away"); err != nil {
		t.Fatal(err)
	}
	if err := move(from, dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("its last step: %v", err)
	}
	if !holds(t, path, "/registry/old") {
		t.Error("what was written to the old store is lost")
	}
	if err := os.Rename(fresh+".away", fresh); err != nil {
		t.Fatal(err)
	}
	if err := place(t.Context(), from, dir); err != nil {
		t.Fatal(err)
	}
	if !holds(t, path, "/registry/new") || holds(t, path, "/registry/old") {
		t.Error("the new store has not taken the place of the old one")
	}
	if !holds(t, filepath.Join(dir, replacedFile), "/registry/old") {
		t.Error("the old store was not kept")
	}
}
