// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
)

// A replica of an earlier space of the same name stays, because it may be all that is left of it.
func TestAReplicaOfAnotherStoreStays(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	s := p.open(t, "again")
	s.put(key(0), "of the first")
	p.upToDate(t, "again")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p = newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) {
		c.StoreID = func(string) (string, error) { return "fedcba9876543210", nil }
	})
	s = p.open(t, "again")
	s.put(key(0), "of the second")
	p.upToDate(t, "again")
	for name, want := range map[string]string{"again/latest": "of the second", "again/latest-" + storeID: "of the first"} {
		have, err := restored(t, bucket, name)
		if err != nil || have[key(0)] != want {
			t.Errorf("%s has %v (%v)", name, have, err)
		}
	}
	infos, err := bucket.Replicas(t.Context(), "again")
	if err != nil || len(infos) != 2 || infos[0].ID != "again/latest-fedcba9876543210" || infos[1].ID != "again/latest-"+storeID {
		t.Errorf("the list is %+v (%v)", infos, err)
	}
	if id, err := bucket.Find(t.Context(), snapshot.ID{Space: "again", Latest: true}); err != nil || id.Store != "fedcba9876543210" {
		t.Errorf("the store that was replicated last is %+v (%v)", id, err)
	}
	id, err := snapshot.ParseID("again/latest-" + storeID)
	if err == nil {
		err = bucket.Delete(t.Context(), id)
	}
	if infos, listErr := bucket.Replicas(t.Context(), "again"); err != nil || listErr != nil || len(infos) != 1 {
		t.Errorf("after the deletion, the list is %+v (%v, %v)", infos, err, listErr)
	}
}

// A restore has the keys that the space had last.
func TestNewKeysGetIntoTheReplica(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	s := p.open(t, "rotated")
	s.put(key(0), "value")
	p.upToDate(t, "rotated")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "rotated", "node.key"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = p.open(t, "rotated")
	s.put(key(1), "value")
	eventually(t, func() error {
		dir := t.TempDir()
		if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: "rotated", Latest: true}, dir, filepath.Join(dir, ".scratch")); err != nil {
			return err
		}
		if data, err := os.ReadFile(filepath.Join(dir, "rotated", "node.key")); err != nil || string(data) != "another" {
			return fmt.Errorf("the key is %q (%w)", data, err)
		}
		return nil
	})
}

// D5: what is restored of a space that has moved says how often, or else its shard would not take it for the one that counts.
func TestARestoredReplicaHasTheNumberOfMoves(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	p.moves = 7
	s := p.open(t, "moved")
	s.put(key(0), "value")
	p.upToDate(t, "moved")
	dir := t.TempDir()
	if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: "moved", Latest: true}, dir, filepath.Join(dir, ".scratch")); err != nil {
		t.Fatal(err)
	}
	if moves, err := datadir.Moves(filepath.Join(dir, "moved")); err != nil || moves != 7 {
		t.Errorf("it has moved %d times (%v)", moves, err)
	}
}

// What was not in the bucket when a process ended gets there by the next one, without another base. A bucket that can't be reached doesn't
// hold up a close for long.
func TestTheNextProcessUploadsWhatIsMissing(t *testing.T) {
	s3, dir := newStorage(t), t.TempDir()
	bucket := s3.bucket(t)
	p := newProcess(t, dir, bucket, nil)
	s := p.open(t, "ended")
	p.upToDate(t, "ended")
	before := streams(t, bucket, "ended")
	s3.down.Store(true)
	s.put(key(1), "missing")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if state, _ := p.State("ended"); state.Reason != replicator.Unreachable || state.Rows == 0 {
		t.Errorf("after the close, the state is %+v", state)
	}
	s3.down.Store(false)
	p = newProcess(t, dir, bucket, nil)
	p.open(t, "ended")
	p.upToDate(t, "ended")
	if have, err := restored(t, bucket, "ended/latest"); err != nil || have[key(1)] != "missing" {
		t.Errorf("the replica has %v (%v)", have, err)
	}
	if diff := cmp.Diff(before, streams(t, bucket, "ended")); diff != "" {
		t.Errorf("another base was made: %s", diff)
	}
}
