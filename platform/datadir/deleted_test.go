// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// T7, T8: the directory of a space is there as a whole or gone as a whole, and each step may be repeated after a crash.
func TestTheDirectoryOfADeletedSpaceGoesOrIsKept(t *testing.T) {
	for policy, retain := range map[v1alpha1.DeletionPolicy]bool{v1alpha1.DeletionDelete: false, v1alpha1.DeletionRetain: true} {
		data := t.TempDir()
		dir, store := Space(data, "a"), filepath.Join(Space(data, "a"), "store.db")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{store: "objects", filepath.Join(dir, storeIDFile): strings.Repeat("i", 32)} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		id, err := StoreIDIn(dir)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the object of the space may not be gone yet
			if err := MoveAway(data, "a", retain); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("its directory is there: %v", err)
			}
			if left, err := os.ReadDir(Deleted(data, "a")); !retain && (err != nil || len(left) != 1) {
				t.Fatalf("of a directory that is deleted are left %v (%v)", left, err)
			}
			if known, err := KnownStoreID(data, "a"); known != id || err != nil {
				t.Fatalf("with %s, the store is known as %q (%v), want %q", policy, known, err, id)
			}
		}
		for range 2 {
			if err := TakeBack(data, "a"); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(store)
		if retain != (string(text) == "objects") || retain != (err == nil) {
			t.Errorf("with %s, a space of the name has %q (%v)", policy, text, err)
		}
	}
}

// T7: an older store that was retained is kept beside a newer one.
func TestAnOlderStoreThatWasRetainedIsKept(t *testing.T) {
	data := t.TempDir()
	for range 2 {
		if err := os.MkdirAll(Space(data, "a"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := MoveAway(data, "a", true); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(Retained(data, "a")))
	if err != nil || len(entries) != 2 || entries[0].Name() != "a" {
		t.Errorf("retained are %v (%v)", entries, err)
	}
}
