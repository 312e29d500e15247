// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/snapshot"
)

// D2: replicas that can't be listed hide no snapshots.
func TestReplicasThatCannotBeListedHideNoSnapshots(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "demo"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"demo/20260102T030405.000Z.tar.zst", "~replicas"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	bucket, err := snapshot.Open("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, space := range []string{"", "demo"} {
		infos, err := bucket.All(t.Context(), space)
		if err == nil || len(infos) != 1 || infos[0].ID != "demo/20260102T030405.000Z" {
			t.Errorf("the list of space %q is %+v (%v)", space, infos, err)
		}
	}
}
