// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/snapshot"
)

// D2: what could be listed is printed, and the rest is an error.
func TestAnIncompleteListOfSnapshotsIsPrintedAndFails(t *testing.T) {
	now := time.Now()
	one := []snapshot.Info{{ID: "demo/one", Space: "demo", Time: now, Bytes: 1}}
	for reason, test := range map[string]struct {
		list       manager.SnapshotList
		out, hints string
		fails      string
	}{
		"all":      {manager.SnapshotList{Snapshots: one}, "demo/one", "", ""},
		"some":     {manager.SnapshotList{Snapshots: one, Failures: []string{"list snapshots at s3://gone: no such host"}}, "demo/one", "", "s3://gone"},
		"failures": {manager.SnapshotList{Failures: []string{"list snapshots at s3://gone: no such host"}}, "", "", "s3://gone"},
		"none":     {manager.SnapshotList{}, "", "No snapshots found", ""},
	} {
		var out, hints strings.Builder
		err := printSnapshots(&out, &hints, test.list, now)
		if !strings.Contains(out.String(), test.out) || !strings.Contains(hints.String(), test.hints) || test.hints == "" && hints.Len() > 0 {
			t.Errorf("%s: printed are %q and %q", reason, out.String(), hints.String())
		}
		if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
