// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"
)

// D2: a space's snapshots go where its spec says, on schedule and by hand, if the admin allows that place.
func TestASpaceHasSnapshotsOfItsOwn(t *testing.T) {
	t.Parallel()
	usual, other, foreign := t.TempDir(), t.TempDir(), t.TempDir()
	b := start(t, "--space", "usual", "--snapshot-to", "file://"+usual, "--snapshot-also-to", "file://"+other, "--snapshot-every", "24h")
	host := b.host(t)
	taken := func(dir, space string) int {
		t.Helper()
		return len(must(filepath.Glob(filepath.Join(dir, space, "*.tar.zst")))(t))
	}
	applySpace(t, host, "own", fmt.Sprintf(`{snapshots: {to: "file://%s", intervalSeconds: 3600}}`, other))
	applySpace(t, host, "unscheduled", `{snapshots: {intervalSeconds: 0}}`)
	eventually(t, func() error { // a new space is seen within a minute
		return expect("snapshots of the space in its own place", taken(other, "own"), 1)
	})
	b.command(t, "snapshot", "create", "own")
	b.command(t, "snapshot", "create", "unscheduled")
	if own, off, elsewhere := taken(other, "own"), taken(usual, "unscheduled"), taken(usual, "own")+taken(other, "unscheduled"); own != 2 || off != 1 || elsewhere != 0 {
		t.Errorf("there are %d and %d snapshots where the specs say, and %d elsewhere", own, off, elsewhere)
	}

	host.apply(t, spaceObject("own", fmt.Sprintf(`{snapshots: {to: "file://%s"}}`, foreign)))
	awaitReady(t, host, "own", "False InvalidSpec", "spec.snapshots.to: Forbidden", "--snapshot-also-to")
	b.command(t, "snapshot", "create", "own")
	if taken(foreign, "own") != 0 || taken(other, "own") != 3 {
		t.Error("a snapshot is where the admin allows none")
	}
}
