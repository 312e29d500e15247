// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/snapshot"
)

// D2: a place for snapshots that can't be read hides none of the others.
func TestAPlaceThatCannotBeReadHidesNoOtherSnapshots(t *testing.T) {
	root := t.TempDir()
	buckets := map[string]*snapshot.Bucket{}
	for _, name := range []string{"a-broken", "b", "c"} {
		dir := filepath.Join(root, name)
		if name == "a-broken" {
			if err := os.WriteFile(dir, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			if err := os.MkdirAll(filepath.Join(dir, "demo"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "demo", "20260102T030405.000Z.tar.zst"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		bucket, err := snapshot.Open("file://" + dir)
		if err != nil {
			t.Fatal(err)
		}
		buckets["file://"+dir] = bucket
	}
	list := (&snapshots{buckets: buckets}).list(t.Context())
	if len(list.Snapshots) != 2 || len(list.Failures) != 1 || !strings.Contains(list.Failures[0], "a-broken") {
		t.Errorf("the list is %+v", list)
	}
}
