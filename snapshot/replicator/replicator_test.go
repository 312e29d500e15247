// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
)

// D2: what is created, changed, and deleted is in the replica, in either kind of bucket.
func TestAReplicaHasWhatIsWritten(t *testing.T) {
	for kind, bucket := range map[string]*snapshot.Bucket{"directory": directory(t), "S3": newStorage(t).bucket(t)} {
		t.Run(kind, func(t *testing.T) {
			p := newProcess(t, t.TempDir(), bucket, nil)
			s := p.open(t, "demo")
			for i := range 20 {
				s.put(key(i), "first")
				s.put(key(i), strings.Repeat("x", i))
			}
			p.upToDate(t, "demo")
			s.delete(key(3))
			s.put(key(3), "again")
			s.delete(key(4))
			p.upToDate(t, "demo")
			want := s.list()
			if len(want) != 19 {
				t.Fatalf("the space has %d objects", len(want))
			}
			have, err := restored(t, bucket, "demo/latest")
			if diff := cmp.Diff(want, have); err != nil || diff != "" {
				t.Error(err, diff)
			}
			infos, err := bucket.Replicas(t.Context(), "demo")
			if err != nil || len(infos) != 1 || infos[0].ID != "demo/latest" || infos[0].Bytes == 0 || infos[0].Time.IsZero() {
				t.Errorf("the list is %+v (%v)", infos, err)
			}
			if infos, err := bucket.All(t.Context(), ""); err != nil || len(infos) != 1 || infos[0].ID != "demo/latest" {
				t.Errorf("the list of all spaces is %+v (%v)", infos, err)
			}
			if infos, err := bucket.List(t.Context(), ""); err != nil || len(infos) != 0 {
				t.Errorf("the replica is in the list of snapshots: %+v (%v)", infos, err)
			}
		})
	}
}

// The last writes are uploaded before a store is closed, and another process continues where that one has stopped.
func TestAReplicaContinuesAfterAStoreWasClosed(t *testing.T) {
	s3 := newStorage(t)
	bucket, dir := s3.bucket(t), t.TempDir()
	p := newProcess(t, dir, bucket, nil)
	s := p.open(t, "closes")
	p.upToDate(t, "closes")
	s.put(key(1), "just before")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	have, err := restored(t, bucket, "closes/latest")
	if err != nil || have[key(1)] != "just before" {
		t.Fatalf("the replica has %v (%v)", have, err)
	}
	before := streams(t, bucket, "closes")
	requests := s3.requests.Load()
	s = p.open(t, "closes") // writes nothing
	p.upToDate(t, "closes")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := s3.requests.Load() - requests; n != 0 {
		t.Errorf("a space that woke and wrote nothing made %d requests", n)
	}
	p = newProcess(t, dir, bucket, nil)
	s = p.open(t, "closes")
	s.put(key(2), "by another process")
	p.upToDate(t, "closes")
	if have, err = restored(t, bucket, "closes/latest"); err != nil || have[key(2)] != "by another process" {
		t.Errorf("the replica has %v (%v)", have, err)
	}
	if diff := cmp.Diff(before, streams(t, bucket, "closes")); diff != "" {
		t.Errorf("another stream was begun: %s", diff)
	}
}

// streams returns the bases of a replica.
func streams(t *testing.T, bucket *snapshot.Bucket, space string) (bases []string) {
	t.Helper()
	histories, err := bucket.Replica(space).Histories(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range histories {
		for _, b := range h.Bases {
			bases = append(bases, fmt.Sprintf("%s at %d", h.Stream, b.Revision))
		}
	}
	return bases
}

// A bucket that can't be reached delays no write. The state says since when, and the replica catches up.
func TestAnUnreachableBucketDelaysNoWrite(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	s := p.open(t, "cut-off")
	p.upToDate(t, "cut-off")
	s3.down.Store(true)
	s.put(key(1), "one")
	eventually(t, func() error {
		s.put(key(2), "two")
		if state, _ := p.State("cut-off"); state.Reason != replicator.Unreachable || state.Since.IsZero() || state.Rows == 0 || state.Err == "" {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	s3.down.Store(false)
	p.upToDate(t, "cut-off")
	if have, err := restored(t, bucket, "cut-off/latest"); err != nil || have[key(1)] != "one" || have[key(2)] != "two" {
		t.Errorf("the replica has %v (%v)", have, err)
	}
}

// D3 and D2: a nearly full store is compacted although the bucket doesn't have the rows, and the replica gets a new base.
func TestACompactedStoreGetsANewBase(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	s := p.open(t, "pressed")
	for i := range 10 {
		s.put(key(i), "stays, or is deleted")
	}
	p.upToDate(t, "pressed")
	first, replicated := streams(t, bucket, "pressed"), s.Last()
	s3.down.Store(true)
	for i := range 5 {
		s.delete(key(i))
	}
	big := strings.Repeat("z", 1<<20)
	for i := 0; s.CompactRevision() <= replicated+5; i++ {
		if s.put(key(100), fmt.Sprint(i, big)); i > 200 {
			t.Fatal("the store was never compacted")
		}
	}
	s3.down.Store(false)
	p.upToDate(t, "pressed")
	want := s.list()
	have, err := restored(t, bucket, "pressed/latest")
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if now := streams(t, bucket, "pressed"); len(now) != 1 || now[0] == first[0] {
		t.Errorf("the bases are %q, and were %q", now, first)
	}
}

// When there are many segments, a new base takes their place.
func TestSegmentsAreReplacedByABase(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.MaxSegments = 5 })
	s := p.open(t, "busy")
	p.upToDate(t, "busy")
	first := streams(t, bucket, "busy")
	i := 0
	eventually(t, func() error {
		s.put(key(i%50), fmt.Sprint(i))
		i++
		p.upToDate(t, "busy")
		if now := streams(t, bucket, "busy"); len(now) != 1 || now[0] == first[0] {
			return fmt.Errorf("the bases are %q", now)
		}
		return nil
	})
	histories, err := bucket.Replica("busy").Histories(t.Context())
	if err != nil || len(histories) != 1 {
		t.Fatalf("%d streams (%v)", len(histories), err)
	}
	want := s.list()
	have, err := restored(t, bucket, "busy/latest")
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// D5: a process that was stopped, and that goes on after another one has the space, changes nothing in what is restored.
func TestAStoppedProcessOverwritesNothing(t *testing.T) {
	for reason, c := range map[string]struct {
		moves   int64
		restore bool
	}{
		"the space has moved":      {moves: 1},
		"the files were copied":    {},
		"the replica was restored": {restore: true},
	} {
		t.Run(reason, func(t *testing.T) {
			space := "stopped"
			bucket, oldDir, newDir := directory(t), t.TempDir(), t.TempDir()
			old := newProcess(t, oldDir, bucket, func(c *replicator.Config) { c.MaxSegments = 3 })
			s := old.open(t, space)
			s.put(key(0), "of both")
			old.upToDate(t, space)
			to := filepath.Join(newDir, space)
			if c.restore {
				if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: space, Latest: true}, newDir, filepath.Join(newDir, ".scratch")); err != nil {
					t.Fatal(err)
				}
			} else if err := os.MkdirAll(to, 0o700); err != nil {
				t.Fatal(err)
			} else if err := s.Snapshot(t.Context(), filepath.Join(to, "store.db")); err != nil {
				t.Fatal(err)
			}
			current := newProcess(t, newDir, bucket, nil)
			current.moves = c.moves
			now := current.open(t, space)
			now.put(key(1), "of the current one")
			current.upToDate(t, space)
			// The old one continues.
			i := 0
			eventually(t, func() error {
				s.put(key(2), fmt.Sprint("of the old one ", i))
				i++
				if state, _ := old.State(space); state.Reason != replicator.TakenOver {
					return fmt.Errorf("the state of the old process is %+v", state)
				}
				return nil
			})
			now.put(key(3), "of the current one, later")
			current.upToDate(t, space)
			want := map[string]string{key(0): "of both", key(1): "of the current one", key(3): "of the current one, later"}
			have, err := restored(t, bucket, space+"/latest")
			if diff := cmp.Diff(want, have); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

// A segment that is damaged, or missing, is named, and what comes before it can be restored.
func TestHostileADamagedSegmentIsNamed(t *testing.T) {
	for reason, damage := range map[string]func(path string) error{
		"changed":    func(path string) error { return os.WriteFile(path, []byte("something else"), 0o600) },
		"missing":    os.Remove,
		"of another": func(path string) error { return os.WriteFile(path, other(path), 0o600) },
	} {
		t.Run(reason, func(t *testing.T) {
			bucketDir := t.TempDir()
			bucket, err := snapshot.Open("file://" + bucketDir)
			if err != nil {
				t.Fatal(err)
			}
			p := newProcess(t, t.TempDir(), bucket, nil)
			s := p.open(t, "damaged")
			p.upToDate(t, "damaged")
			for i := range 6 {
				s.put(key(i), "value")
				p.upToDate(t, "damaged")
			}
			histories, err := bucket.Replica("damaged").Histories(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			segments := histories[0].Segments
			hurt := segments[len(segments)-3]
			name := fmt.Sprintf("%s-rows-%020d.zst", histories[0].Stream, hurt.First)
			if err := damage(filepath.Join(bucketDir, "~replicas", "damaged", name)); err != nil {
				t.Fatal(err)
			}
			_, err = restored(t, bucket, "damaged/latest")
			good := fmt.Sprintf("damaged/latest-%s@%d", storeID, hurt.First-1)
			if !errors.Is(err, snapshot.ErrDamaged) || !strings.Contains(err.Error(), good) || !strings.Contains(err.Error(), "-rows-") {
				t.Fatalf("got %v, wanted %s in it", err, good)
			}
			have, err := restored(t, bucket, good)
			if err != nil || len(have) == 0 || have[key(5)] != "" {
				t.Errorf("%s has %v (%v)", good, have, err)
			}
		})
	}
}

// other returns the segment before that at path.
func other(path string) []byte {
	all, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*-rows-*"))
	for i := range all {
		if all[i] == path {
			data, _ := os.ReadFile(all[i-1])
			return data
		}
	}
	return nil
}

// Replication can be switched on and off while a space runs.
func TestReplicationFollowsItsDestination(t *testing.T) {
	one, two := directory(t), directory(t)
	p := newProcess(t, t.TempDir(), nil, nil)
	s := p.open(t, "switched")
	s.put(key(0), "before")
	if _, known := p.State("switched"); known {
		t.Error("a space without replication has a state")
	}
	for _, bucket := range []*snapshot.Bucket{one, two} {
		p.destination.Store(bucket)
		p.Check("switched")
		eventually(t, func() error {
			s.put(key(1), "to a bucket")
			have, err := restored(t, bucket, "switched/latest")
			if err == nil && have[key(0)] != "before" {
				err = fmt.Errorf("the replica has %v", have)
			}
			return err
		})
	}
	p.destination.Store(nil)
	p.Check("switched")
	eventually(t, func() error {
		if state, known := p.State("switched"); known {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
}
