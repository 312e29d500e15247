// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
)

// copyTo copies a store, as of a volume that another process gets.
func (s *store) copyTo(t *testing.T, dir, space string) {
	t.Helper()
	to := filepath.Join(dir, space)
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Snapshot(t.Context(), filepath.Join(to, "store.db")); err != nil {
		t.Fatal(err)
	}
}

// D5: a process makes a base of a stream that it began. Another process opens the store meanwhile. When the base is complete, the first one
// removes nothing of what the second one has.
func TestALateBaseRemovesNothingOfTheNextProcess(t *testing.T) {
	const space = "late"
	s3, oldDir, newDir := newStorage(t), t.TempDir(), t.TempDir()
	bucket := s3.bucket(t)
	first := newProcess(t, oldDir, bucket, nil)
	s := first.open(t, space)
	s.put(key(0), "of both")
	first.upToDate(t, space)
	s.copyTo(t, newDir, space)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: space, Latest: true}, oldDir, filepath.Join(oldDir, ".scratch")); err != nil {
		t.Fatal(err)
	}
	held, release := s3.holdBase(t)
	old := newProcess(t, oldDir, bucket, nil) // begins another stream, as the store was restored
	old.open(t, space)
	<-held
	current := newProcess(t, newDir, bucket, nil)
	now := current.open(t, space)
	now.put(key(1), "of the current one")
	current.upToDate(t, space)
	release()
	old.takenOver(t, space)
	now.put(key(2), "of the current one, later")
	current.upToDate(t, space)
	want := map[string]string{key(0): "of both", key(1): "of the current one", key(2): "of the current one, later"}
	have, err := restored(t, bucket, space+"/latest")
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// D5: a process can't begin another stream when another process has opened the store, even if that one has written nothing.
func TestAStreamOfAnIdleProcessStays(t *testing.T) {
	const space = "idle"
	s3, newDir := newStorage(t), t.TempDir()
	bucket := s3.bucket(t)
	old := newProcess(t, t.TempDir(), bucket, nil)
	s := old.open(t, space)
	s.put(key(0), "of both")
	old.upToDate(t, space)
	s.copyTo(t, newDir, space)
	current := newProcess(t, newDir, bucket, nil)
	now := current.open(t, space)
	current.upToDate(t, space)
	s3.down.Store(true)
	s.press()
	s3.down.Store(false)
	old.takenOver(t, space)
	now.put(key(1), "of the current one")
	current.upToDate(t, space)
	want := map[string]string{key(0): "of both", key(1): "of the current one"}
	have, err := restored(t, bucket, space+"/latest")
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// D5: the process that opened a store last replicates it, even if one that was stopped writes to the stream once more.
func TestTheLastProcessGoesOn(t *testing.T) {
	const space = "goes-on"
	bucket, newDir := directory(t), t.TempDir()
	old := newProcess(t, t.TempDir(), bucket, nil)
	s := old.open(t, space)
	s.put(key(0), "of both")
	old.upToDate(t, space)
	s.copyTo(t, newDir, space)
	current := newProcess(t, newDir, bucket, nil)
	now := current.open(t, space)
	current.upToDate(t, space)
	s.put(key(1), "of the old one")
	old.upToDate(t, space)
	now.put(key(2), "of the current one")
	current.upToDate(t, space)
	have, err := restored(t, bucket, space+"/latest")
	if diff := cmp.Diff(map[string]string{key(0): "of both", key(2): "of the current one"}, have); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// D2: a store that is older than its replica, as it is of an old copy of a volume, or was lost, changes nothing of the replica, whatever is
// written to it, until somebody deletes the replica.
func TestAStoreThatIsOlderThanItsReplicaReplacesNothing(t *testing.T) {
	for reason, lost := range map[string]bool{"an old copy": false, "a lost file": true} {
		t.Run(reason, func(t *testing.T) {
			const space = "older"
			bucket, dir := directory(t), t.TempDir()
			first := newProcess(t, t.TempDir(), bucket, nil)
			s := first.open(t, space)
			s.put(key(0), "one")
			first.upToDate(t, space)
			if !lost {
				s.copyTo(t, dir, space)
			}
			for i := range 20 {
				s.put(key(i), "two")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			// A process that ended before the base of another stream was complete.
			if err := bucket.Replica(space).Claim(t.Context(), snapshot.Stream{Store: storeID, Seq: 9, Run: "01234567"}, snapshot.Begins); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{}
			for i := range 20 {
				want[key(i)] = "two"
			}
			old := newProcess(t, dir, bucket, nil)
			refused := func() {
				t.Helper()
				eventually(t, func() error {
					if state, _ := old.State(space); state.Reason != replicator.StoreBehind {
						return fmt.Errorf("the state is %+v", state)
					}
					return nil
				})
				have, err := restored(t, bucket, space+"/latest")
				if diff := cmp.Diff(want, have); err != nil || diff != "" {
					t.Fatal(err, diff)
				}
			}
			s = old.open(t, space)
			refused()
			for i := range 1100 { // as many as could be compacted
				s.put(key(i%30), "of the old one")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			old = newProcess(t, dir, bucket, nil)
			s = old.open(t, space)
			refused()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			id := snapshot.ID{Space: space, Latest: true}
			if err := bucket.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			s = old.open(t, space)
			old.upToDate(t, space)
			have, err := restored(t, bucket, space+"/latest")
			if diff := cmp.Diff(s.list(), have); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

// D5: a store whose moves are counted anew, as after a restore or with another object, is replicated if it is the one that counts. One that was
// stopped isn't.
func TestMovesMayBeCountedAnew(t *testing.T) {
	const space = "anew"
	bucket, dir := directory(t), t.TempDir()
	p := newProcess(t, dir, bucket, nil)
	p.moves = 3
	s := p.open(t, space)
	s.put(key(0), "moved")
	p.upToDate(t, space)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p = newProcess(t, dir, bucket, func(c *replicator.Config) {
		c.Counts = func(context.Context, string) (bool, error) { return false, nil }
	})
	s = p.open(t, space)
	p.takenOver(t, space)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // another process, and once more
		p = newProcess(t, dir, bucket, func(c *replicator.Config) {
			c.Counts = func(context.Context, string) (bool, error) { return true, nil }
		})
		s = p.open(t, space)
		s.put(key(1), fmt.Sprint("anew", i))
		p.upToDate(t, space)
		have, err := restored(t, bucket, space+"/latest")
		if diff := cmp.Diff(s.list(), have); err != nil || diff != "" {
			t.Error(err, diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A space whose replica was taken over in one place is replicated in another one.
func TestAnotherPlaceEndsATakeOver(t *testing.T) {
	const space = "elsewhere"
	bucket, other, newDir := directory(t), directory(t), t.TempDir()
	old := newProcess(t, t.TempDir(), bucket, nil)
	s := old.open(t, space)
	old.upToDate(t, space)
	s.copyTo(t, newDir, space)
	current := newProcess(t, newDir, bucket, nil)
	now := current.open(t, space)
	now.put(key(0), "of the current one")
	current.upToDate(t, space)
	s.put(key(1), "of the old one")
	old.takenOver(t, space)
	old.Check(space)
	old.destination.Store(other)
	old.Check(space)
	old.upToDate(t, space)
	if have, err := restored(t, other, space+"/latest"); err != nil || have[key(1)] != "of the old one" {
		t.Errorf("the other place has %v (%v)", have, err)
	}
}

// takenOver waits until a process knows that another one replicates a space.
func (p *process) takenOver(t *testing.T, space string) {
	t.Helper()
	eventually(t, func() error {
		if state, _ := p.State(space); state.Reason != replicator.TakenOver {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
}

// press fills a store until it was compacted beyond what it has now.
func (s *store) press() {
	s.t.Helper()
	to, big := s.Last(), strings.Repeat("z", 1<<20)
	for i := 0; s.CompactRevision() <= to; i++ {
		if s.put(key(100), fmt.Sprint(i, big)); i > 200 {
			s.t.Fatal("the store was never compacted")
		}
	}
}
