// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// T7, T8: the directory of a space is there as a whole or gone as a whole, and each step may be repeated after a crash.
func TestTheDirectoryOfADeletedSpaceGoesOrIsKept(t *testing.T) {
	for policy, retain := range map[v1alpha1.DeletionPolicy]bool{v1alpha1.DeletionDelete: false, v1alpha1.DeletionRetain: true} {
		data := t.TempDir()
		dir, store := spaceDir(data, "a"), filepath.Join(spaceDir(data, "a"), "store.db")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(store, []byte("objects"), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := moveAway(data, "a", retain); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("its directory is there: %v", err)
			}
			if !retain {
				continue
			}
			if _, err := os.Stat(retainedDir(data, "a")); err != nil {
				t.Fatal(err)
			}
			break // one that is retained is moved once: the next is another space of the name
		}
		for range 2 {
			if err := takeBack(data, "a"); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(store)
		if retain != (string(text) == "objects") || retain != (err == nil) {
			t.Errorf("with %s, a space of the name has %q (%v)", policy, text, err)
		}
	}
}

// T7: one thing is done to a space at a time.
func TestASpaceIsNotRestoredAndDeletedAtOnce(t *testing.T) {
	var c changes
	end, err := c.begin("a", "being restored")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.begin("a", "being deleted"); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	other, err := c.begin("b", "being deleted")
	if err != nil {
		t.Error(err)
	}
	other()
	end()
	if _, err := c.begin("a", "being deleted"); err != nil {
		t.Errorf("once the first has ended: %v", err)
	}
}
