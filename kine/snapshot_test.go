// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
)

// D2: a backup of a store that is written to shows one moment.
func TestASnapshotUnderWritersIsOfOneMoment(t *testing.T) {
	onEach(t, testASnapshotUnderWritersIsOfOneMoment)
}

func testASnapshotUnderWritersIsOfOneMoment(t *testing.T, p place) {
	const writers = 8
	dir := t.TempDir()
	s := p.open(t)
	done := make(chan struct{})
	var writing sync.WaitGroup
	var pause sync.RWMutex // while a snapshot is restored, so that the next one is not much larger
	for w := range writers {
		first := fmt.Sprintf("/registry/%d/first", w)
		second := fmt.Sprintf("/registry/%d/second", w)
		firstRev, secondRev := create(t, s, first, "0"), create(t, s, second, "0")
		writing.Go(func() {
			for i := 1; ; i++ { // the second is always as far as the first, or one behind
				select {
				case <-done:
					return
				default:
				}
				value := fmt.Sprintf("%d %s", i, strings.Repeat("x", 2000))
				pause.RLock()
				firstRev = put(t, s, first, value, firstRev)
				secondRev = put(t, s, second, value, secondRev)
				pause.RUnlock()
			}
		})
	}
	stop := sync.OnceFunc(func() {
		close(done)
		writing.Wait()
	})
	defer stop()
	for i := range 5 {
		before := mustRevision(t, s)
		until(t, func() bool { return mustRevision(t, s) > before+50 })
		before = mustRevision(t, s)
		snapshot := filepath.Join(dir, fmt.Sprint("snapshot-", i))
		if err := s.Snapshot(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		after := mustRevision(t, s)
		list := func() *kubernetes.ListResponse {
			pause.Lock()
			defer pause.Unlock()
			restored := p.another(t)
			restored.restore(t, snapshot)
			r := restored.open(t)
			defer closeStore(t, r)
			list, err := r.Client().Kubernetes.List(t.Context(), "/registry/", kubernetes.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return &list
		}()
		values, newest := map[string]int{}, int64(0)
		for _, kv := range list.Kvs {
			n, _, _ := strings.Cut(string(kv.Value), " ")
			values[string(kv.Key)], _ = strconv.Atoi(n)
			newest = max(newest, kv.ModRevision)
		}
		for w := range writers {
			a, b := values[fmt.Sprintf("/registry/%d/first", w)], values[fmt.Sprintf("/registry/%d/second", w)]
			if a != b && a != b+1 {
				t.Errorf("snapshot %d has writer %d at %d and %d", i, w, a, b)
			}
		}
		if newest < before || newest > after {
			t.Errorf("snapshot %d is at %d, made between %d and %d", i, newest, before, after)
		}
	}
	stop()
	if left, err := filepath.Glob(filepath.Join(dir, "*.new*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func mustRestore(t *testing.T, snapshot, path string) {
	t.Helper()
	if err := kine.Restore(t.Context(), snapshot, path); err != nil {
		t.Fatal(err)
	}
}

func snapshotOf(t *testing.T, s *kine.Store) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := s.Snapshot(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// D2: what knew the store as it was must not take the restored one for it.
func TestClientsOfAStoreThatWasRestoredListAnew(t *testing.T) {
	onEach(t, testClientsOfAStoreThatWasRestoredListAnew)
}

func testClientsOfAStoreThatWasRestoredListAnew(t *testing.T, p place) {
	s := p.open(t)
	kept := create(t, s, "/registry/kept", "1")
	changed := create(t, s, "/registry/changed", "1")
	remove(t, s, "/registry/gone", create(t, s, "/registry/gone", "1"))
	putFor(t, s, "/registry/events/a", 3600)
	expiry, _, err := s.NextExpiry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snapshot := snapshotOf(t, s)
	lost := put(t, s, "/registry/changed", "2", changed)
	later := create(t, s, "/registry/later", "1")

	other := p.another(t)
	other.restore(t, snapshot)
	r := other.open(t)
	c := r.Client()
	list, err := c.Kubernetes.List(t.Context(), "/registry/", kubernetes.ListOptions{})
	if err != nil || list.Revision <= later {
		t.Fatalf("list at %d after %d, %v", list.Revision, later, err)
	}
	got := map[string]string{}
	for _, kv := range list.Kvs {
		got[string(kv.Key)] = string(kv.Value)
	}
	want := map[string]string{
		"/registry/kept": "1", "/registry/changed": "1", "/registry/events/a": "1", "/registry/health": `{"health":"true"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects: %s", diff)
	}
	for _, rev := range []int64{kept, lost, later, list.Revision - 1} {
		if resp, open := <-c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(rev)); !open || !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
			t.Errorf("watch from %d: %v, want %v", rev, resp.Err(), rpctypes.ErrCompacted)
		}
	}
	for _, rev := range []int64{kept, later} {
		if _, err := c.Kubernetes.List(t.Context(), "/registry/", kubernetes.ListOptions{Revision: rev}); !errors.Is(err, rpctypes.ErrCompacted) {
			t.Errorf("list at %d: %v, want %v", rev, err, rpctypes.ErrCompacted)
		}
	}
	if resp, err := c.Kubernetes.OptimisticPut(t.Context(), "/registry/changed", []byte("3"), lost, kubernetes.PutOptions{GetOnFailure: true}); err != nil || resp.Succeeded {
		t.Errorf("update of a version that the snapshot doesn't have: %v, %v", resp.Succeeded, err)
	}

	watch := c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(list.Revision+1))
	next := put(t, r, "/registry/kept", "2", kept)
	if next <= list.Revision {
		t.Errorf("write at %d after %d", next, list.Revision)
	}
	if diff := cmp.Diff([]string{fmt.Sprintf("PUT /registry/kept 2 at %d before 1", next)}, take(t, watch, 1)); diff != "" {
		t.Errorf("watch: %s", diff)
	}
	if at, ok, err := r.NextExpiry(t.Context()); err != nil || !ok || !at.Equal(expiry) {
		t.Errorf("next expiry is %s, %t, %v; it was %s", at, ok, err, expiry)
	}
	if p.server == nil {
		if mode, err := r.Pragma(t.Context(), "auto_vacuum"); err != nil || mode != "2" {
			t.Errorf("a restored store can't shrink: %s, %v", mode, err)
		}
	}
	closeStore(t, r)
	if rev := mustRevision(t, other.open(t)); rev != next {
		t.Errorf("reopened at %d, closed at %d", rev, next)
	}
}

// D2: what knew a store whose place a restored one takes must not take that for it, however far the old one was.
func TestClientsOfAStoreWhosePlaceIsTakenListAnew(t *testing.T) {
	s := openNew(t)
	create(t, s, "/registry/kept", "1")
	path := filepath.Join(t.TempDir(), "other", "state.db")
	mustRestore(t, snapshotOf(t, s), path)
	const past = 7_000_000_000
	if err := kine.Advance(t.Context(), path, past); err != nil {
		t.Fatal(err)
	}
	c := openAt(t, path).Client()
	list, err := c.Kubernetes.List(t.Context(), "/registry/kept", kubernetes.ListOptions{})
	if err != nil || list.Revision <= past || len(list.Kvs) != 1 {
		t.Fatalf("list of %v, %v", list, err)
	}
	for _, rev := range []int64{past, list.Revision - 1} {
		if resp, open := <-c.Watch(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithRev(rev)); !open || !errors.Is(resp.Err(), rpctypes.ErrCompacted) {
			t.Errorf("watch from %d: %v, want %v", rev, resp.Err(), rpctypes.ErrCompacted)
		}
	}
}

func TestNeitherASnapshotNorARestoreReplacesAnything(t *testing.T) {
	s := openNew(t)
	create(t, s, "/registry/a", "1")
	snapshot := snapshotOf(t, s)
	before := read(t, snapshot)
	if err := s.Snapshot(t.Context(), snapshot); !errors.Is(err, os.ErrExist) {
		t.Errorf("snapshot over a snapshot = %v", err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	other := openAt(t, path)
	create(t, other, "/registry/b", "1")
	for range 2 { // while it is open, and when it is closed
		if err := kine.Restore(t.Context(), snapshot, path); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("restore over a store = %v", err)
		}
		closeStore(t, other)
	}
	if v := value(t, openAt(t, path), "/registry/b"); v != "1" {
		t.Errorf("value = %q", v)
	}
	if !bytes.Equal(before, read(t, snapshot)) {
		t.Error("the snapshot was changed")
	}
}

func TestWhatIsNoSoundSnapshotIsNotRestored(t *testing.T) {
	s := openNew(t)
	for i := range 200 {
		create(t, s, fmt.Sprintf("/registry/pods/%d", i), strings.Repeat("x", 1500))
	}
	sound := read(t, snapshotOf(t, s))
	cases := map[string]struct {
		reason string
		make   func(t *testing.T, path string)
		want   error
	}{
		"Missing":   {"There is nothing.", func(*testing.T, string) {}, os.ErrNotExist},
		"Empty":     {"A download that never began.", func(t *testing.T, path string) { write(t, path, nil) }, kine.ErrNotStore},
		"Text":      {"An error page instead.", func(t *testing.T, path string) { write(t, path, bytes.Repeat([]byte("<html>"), 1000)) }, kine.ErrNotStore},
		"Truncated": {"A download that broke off.", func(t *testing.T, path string) { write(t, path, sound[:len(sound)/2]) }, kine.ErrDamaged},
		"Garbage":   {"A bad disk.", func(t *testing.T, path string) { write(t, path, garbled(sound, len(sound)/2/page*page, page)) }, kine.ErrDamaged},
		"Trigger": {
			"It would run with the store's statements.",
			func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "CREATE TRIGGER t AFTER INSERT ON kine BEGIN DELETE FROM kine; END")
			}, kine.ErrNotStore,
		},
		"IndexOutOfDate": {
			"Only the thorough check finds that an index lacks what the table has.",
			func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "PRAGMA writable_schema=ON; DELETE FROM sqlite_schema WHERE type = 'index'; PRAGMA writable_schema=RESET")
			}, kine.ErrDamaged,
		},
		"OpenStore": {
			"Its last writes are in the log.",
			func(t *testing.T, path string) { create(t, openAt(t, path), "/registry/a", "1") }, kine.ErrNotStore,
		},
		"HugeRevision": {
			"There would be none left to go on with.",
			func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "UPDATE kine SET id = 9223372036854775807 WHERE name = '/registry/pods/1'")
			}, kine.ErrDamaged,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			snapshot, path := filepath.Join(t.TempDir(), "snapshot"), filepath.Join(t.TempDir(), "space", "state.db")
			c.make(t, snapshot)
			if err := kine.Restore(t.Context(), snapshot, path); !errors.Is(err, c.want) || !strings.Contains(err.Error(), snapshot) {
				t.Errorf("restore = %v, want %v with the path. %s", err, c.want, c.reason)
			}
			if left := contents(t, filepath.Dir(path)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestASnapshotThatIsGivenUpLeavesNothing(t *testing.T) {
	s := openNew(t)
	for i := range 300 {
		create(t, s, fmt.Sprintf("/registry/pods/%d", i), strings.Repeat("x", 15000))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := s.Snapshot(ctx, filepath.Join(dir, "snapshot")); !errors.Is(err, context.Canceled) {
		t.Errorf("snapshot = %v", err)
	}
	full := smallDisk(t, "size=1m")
	if err := s.Snapshot(t.Context(), filepath.Join(full, "snapshot")); err == nil {
		t.Error("a snapshot of 4 MB was written to a disk of 1 MB")
	}
	for _, dir := range []string{dir, full} {
		if left := contents(t, dir); len(left) > 0 {
			t.Errorf("left in %s: %d files", dir, len(left))
		}
	}
	create(t, s, "/registry/a", "1") // the store's own disk is not full
}

// D2: a long history that is appended to a snapshot takes about as much space as what it leaves.
func TestAReplayTakesTheSpaceOfItsEnd(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, filepath.Join(dir, "state.db"))
	const name = "/registry/configmaps/default/a"
	first := create(t, s, name, "first")
	path := filepath.Join(dir, "copy.db")
	if err := s.Snapshot(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	value, last := bytes.Repeat([]byte("z"), 1<<20), first
	err := kine.Replay(t.Context(), path, func(add func([]sqlite.Row) error) error {
		for range 100 {
			if err := add([]sqlite.Row{{ID: last + 1, Name: name, CreateRevision: first, PrevRevision: last, Value: value}}); err != nil {
				return err
			}
			last++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 50<<20 {
		t.Errorf("after 100 MiB for one key, the file has %d bytes (%v)", info.Size(), err)
	}
	restored := filepath.Join(dir, "restored.db")
	if err := kine.Restore(t.Context(), path, restored); err != nil {
		t.Fatal(err)
	}
	got, err := openAt(t, restored).Client().Kubernetes.Get(t.Context(), name, kubernetes.GetOptions{})
	if err != nil || got.KV == nil || got.KV.ModRevision != last || !bytes.Equal(got.KV.Value, value) {
		t.Errorf("the store has not the last value (%v)", err)
	}
}
