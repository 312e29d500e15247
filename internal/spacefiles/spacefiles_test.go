// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacefiles_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/internal/spacefiles"
)

func TestADirectoryIsMadeOfWhatWasRead(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "spaces", "demo")
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"node.key", "pki/ca/ca.key", "store.db", "store.db-wal", "cache.db", "cache.db-wal", "cache.db.of", "applied.json", "store-received", "pods.address", "x.lock", ".node.key.123"} {
		write(name, name)
	}
	if err := spacefiles.WriteEpoch(from, 3); err != nil {
		t.Fatal(err)
	}
	data, err := spacefiles.Read(from)
	if diff := cmp.Diff(map[string][]byte{"node.key": []byte("node.key"), "pki/ca/ca.key": []byte("pki/ca/ca.key")}, data); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	if epoch, err := spacefiles.Epoch(to); err != nil || epoch != 0 {
		t.Errorf("the epoch of no directory is %d, %v", epoch, err)
	}
	if err := spacefiles.Write(to, data, 7); err != nil {
		t.Fatal(err)
	}
	again, err := spacefiles.Read(to)
	if diff := cmp.Diff(data, again); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if epoch, err := spacefiles.Epoch(to); err != nil || epoch != 7 {
		t.Errorf("the epoch is %d, %v", epoch, err)
	}
}

// Whoever can write to the database of a space writes no file of the shard.
func TestHostileFilesStayInTheDirectoryOfTheSpace(t *testing.T) {
	for _, name := range []string{"../outside", "/outside", "a/../../outside", "store.db", "cache.db", "cache.db.of", "files.epoch", "applied.json", "store-location.json", "store-received", "pods.address", "dedicated/claims.json", "x.lock", "", "."} {
		at := filepath.Join(t.TempDir(), "spaces", "demo")
		if err := spacefiles.Write(at, map[string][]byte{name: []byte("x")}, 1); err == nil {
			t.Errorf("%q was written", name)
		}
		if _, err := os.Stat(filepath.Join(at, "..", "outside")); err == nil {
			t.Errorf("%q was written outside", name)
		}
	}
}
