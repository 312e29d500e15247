// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/platform/datadir"
)

// D1, D2: the copy of a database for the snapshot of a deletion that came to nothing is not loaded into the database later, where it would replace
// what was written since. A snapshot that was restored is.
func TestACopyForADeletionIsNotTakenForARestoredStore(t *testing.T) {
	m := &Manager{}
	m.config.DataDir = t.TempDir()
	for name, marked := range map[string]bool{"copied": true, "restored": false} {
		for in, dir := range map[string]string{name: datadir.Space(m.config.DataDir, name), name + "-kept": datadir.Retained(m.config.DataDir, name+"-kept")} {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			files := []string{"store.db", "store.db-wal", "id"}
			if marked {
				files = append(files, copyMark)
			}
			for _, file := range files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // it may have been done already
				if err := m.takeBack(in); err != nil {
					t.Fatal(err)
				}
			}
			if m.isRestored(in) == marked {
				t.Errorf("%s: whether a store is to be loaded: %v", in, m.isRestored(in))
			}
			if _, err := os.Stat(filepath.Join(datadir.Space(m.config.DataDir, in), "id")); err != nil {
				t.Errorf("%s: %v", in, err)
			}
		}
	}
}
