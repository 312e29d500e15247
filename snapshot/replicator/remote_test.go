// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/snapshot/replicator"
)

// elsewhere is a process with the store of a space, on another machine.
type elsewhere struct {
	feed.Client
	*feed.Feed
	path string

	mu    sync.Mutex
	store *kine.Store
}

// newElsewhere starts a process whose directory is dir. It ends with the test, or when end is called.
func newElsewhere(t *testing.T, dir, space string) (o *elsewhere, end func()) {
	t.Helper()
	o = &elsewhere{Feed: feed.New(), path: filepath.Join(dir, "store.db")}
	sockets, err := os.MkdirTemp("", "feed") // a short path, as sockets need
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	o.Serve(mux, space)
	server, err := control.Serve(filepath.Join(sockets, "s"), mux, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	o.Client = feed.NewClient(control.NewClientTo("here", 64<<10, func(ctx context.Context) (net.Conn, error) {
		return control.DialSocket(ctx, filepath.Join(sockets, "s"))
	}))
	end = sync.OnceFunc(func() {
		server.Stop(context.Background())
		_ = os.RemoveAll(sockets)
	})
	t.Cleanup(end)
	return o, end
}

func (o *elsewhere) open(t *testing.T, space string) *store {
	t.Helper()
	s, err := kine.Open(t.Context(), kine.Options{Path: o.path, Name: space, Replica: o.Feed, MaxBytes: 32 << 20, History: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	o.mu.Lock()
	o.store = s
	o.mu.Unlock()
	return &store{s, t}
}

func (o *elsewhere) Copy(ctx context.Context, opening uint64, path string) (int64, string, error) {
	o.mu.Lock()
	s := o.store
	o.mu.Unlock()
	if !o.IsOpen(opening) {
		return 0, "", errors.New("it has been closed")
	}
	if err := s.Snapshot(ctx, path); err != nil {
		return 0, "", err
	}
	copied, err := snapshot.OpenCopied(ctx, path)
	return copied.Revision, copied.Row, err
}

// follow follows the store of another process until the test, or end.
func (p *process) follow(t *testing.T, space string, from replicator.Remote) (end func()) {
	t.Helper()
	dir := filepath.Join(p.dir, space, "pki")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "ca.key"), []byte("secret of "+space), 0o600)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { p.Follow(ctx, space, from, true) })
	end = func() {
		cancel()
		following.Wait()
	}
	t.Cleanup(end)
	return end
}

// has waits until the replica has a value.
func has(t *testing.T, bucket *snapshot.Bucket, space, key, value string) {
	t.Helper()
	eventually(t, func() error {
		have, err := restored(t, bucket.Trusted(), space+"/latest")
		if err == nil && have[key] != value {
			err = fmt.Errorf("the replica has %q", have[key])
		}
		return err
	})
}

// D2, T9: what another process writes is in the replica, also right before its store is closed. Nothing of that is opened without trust.
func TestTheStoreOfAnotherProcessIsReplicated(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, _ := newElsewhere(t, t.TempDir(), "apart")
	s := o.open(t, "apart")
	p.follow(t, "apart", o)
	for i := range 20 {
		s.put(key(i), "first")
		s.put(key(i), strings.Repeat("x", i))
	}
	has(t, bucket, "apart", key(19), strings.Repeat("x", 19))
	s.delete(key(4))
	s.put(key(1), "again")
	has(t, bucket, "apart", key(1), "again")
	p.upToDate(t, "apart")
	have, err := restored(t, bucket.Trusted(), "apart/latest")
	if diff := cmp.Diff(s.list(), have); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if _, err := restored(t, bucket, "apart/latest"); !errors.Is(err, snapshot.ErrElsewhere) {
		t.Errorf("without trust, the replica is opened: %v", err)
	}
	s.put(key(2), "just before")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	have, err = restored(t, bucket.Trusted(), "apart/latest")
	if err != nil || have[key(2)] != "just before" {
		t.Errorf("after the store was closed, the replica has %q (%v)", have[key(2)], err)
	}
	p.upToDate(t, "apart")

	before, requests := streams(t, bucket, "apart"), s3.requests.Load()
	s = o.open(t, "apart") // writes nothing
	p.upToDate(t, "apart")
	if n := s3.requests.Load() - requests; n != 0 {
		t.Errorf("a space that woke and wrote nothing made %d requests", n)
	}
	s.put(key(3), "after")
	has(t, bucket, "apart", key(3), "after")
	if now := streams(t, bucket, "apart"); len(now) != len(before) {
		t.Errorf("after it was closed and opened, the replica has the streams %v, had %v", now, before)
	}
}

// D2: while the bucket can't be reached, another process keeps the rows that it lacks, and the stream goes on.
func TestAnotherProcessKeepsRowsForItsReplica(t *testing.T) {
	s3 := newStorage(t)
	bucket := s3.bucket(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, end := newElsewhere(t, t.TempDir(), "keeps")
	s := o.open(t, "keeps")
	unfollow := p.follow(t, "keeps", o)
	s.put(key(0), "first")
	has(t, bucket, "keeps", key(0), "first")
	p.upToDate(t, "keeps")
	before := streams(t, bucket, "keeps")
	s3.down.Store(true)
	for i := range 1500 {
		s.put(key(0), fmt.Sprint(i))
	}
	eventually(t, func() error {
		if state, _ := p.State("keeps"); state.Reason != replicator.Unreachable || state.Rows == 0 {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	s3.down.Store(false)
	p.upToDate(t, "keeps")
	s.put(key(0), "last")
	has(t, bucket, "keeps", key(0), "last")
	if now := streams(t, bucket, "keeps"); len(now) != len(before) {
		t.Errorf("the replica has the streams %v, had %v", now, before)
	}
	// The process is started again, and the platform, too.
	unfollow()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end()
	p = newProcess(t, p.dir, bucket, nil)
	o, _ = newElsewhere(t, filepath.Dir(o.path), "keeps")
	s = o.open(t, "keeps")
	p.follow(t, "keeps", o)
	s.put(key(0), "anew")
	has(t, bucket, "keeps", key(0), "anew")
}

// D2: a store that another process has restored gets a new base. That has to wait after the last one, unless the platform had it restored: the process
// could open another store again and again.
func TestAStoreThatAnotherProcessRestoredGetsANewBase(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.BasePause = time.Hour })
	dir := t.TempDir()
	o, _ := newElsewhere(t, dir, "reset")
	s := o.open(t, "reset")
	p.follow(t, "reset", o)
	s.put(key(0), "old")
	has(t, bucket, "reset", key(0), "old")
	early := filepath.Join(t.TempDir(), "early.db")
	if err := s.Snapshot(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		s.put(key(1), fmt.Sprint(i))
	}
	has(t, bucket, "reset", key(1), "49")
	restore := func() {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Restore(t.Context(), early, dir, t.TempDir()); err != nil {
			t.Fatal(err)
		}
		s = o.open(t, "reset")
		s.put(key(2), "new")
	}
	restore()
	eventually(t, func() error {
		if state, _ := p.State("reset"); state.Reason != replicator.Behind {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
	if have, err := restored(t, bucket.Trusted(), "reset/latest"); err != nil || have[key(1)] != "49" {
		t.Errorf("during the pause, the replica has %v (%v)", have, err)
	}
	p.Restored("reset")
	restore()
	has(t, bucket, "reset", key(2), "new")
	have, err := restored(t, bucket.Trusted(), "reset/latest")
	if diff := cmp.Diff(s.list(), have); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// D2, S3: what another process wrote isn't opened here, although the base is one that this process has made.
func TestRowsOfAnotherProcessMarkAReplica(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	s := p.open(t, "moves")
	s.put(key(0), "here")
	p.upToDate(t, "moves")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := restored(t, bucket, "moves/latest"); err != nil {
		t.Errorf("before the move: %v", err)
	}
	o, _ := newElsewhere(t, filepath.Join(p.dir, "moves"), "moves")
	s = o.open(t, "moves")
	end := p.follow(t, "moves", o)
	s.put(key(0), "there")
	has(t, bucket, "moves", key(0), "there")
	if _, err := restored(t, bucket, "moves/latest"); !errors.Is(err, snapshot.ErrElsewhere) {
		t.Errorf("after the move: %v", err)
	}
	if now := streams(t, bucket, "moves"); len(now) != 1 {
		t.Errorf("the replica has the streams %v", now)
	}
	end()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"back", "back again"} { // by the same platform, and by the next one
		if value == "back again" {
			s = o.open(t, "moves")
			end = p.follow(t, "moves", o)
			s.put(key(0), "there again")
			has(t, bucket, "moves", key(0), "there again")
			end()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			p = newProcess(t, p.dir, bucket, nil)
		}
		s = p.open(t, "moves")
		s.put(key(0), value)
		p.upToDate(t, "moves")
		if have, err := restored(t, bucket, "moves/latest"); err != nil || have[key(0)] != value {
			t.Errorf("after the move back, the replica has %v (%v)", have, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// S3: a base from another process marks a replica, too, before there are rows after it.
func TestABaseOfAnotherProcessMarksAReplica(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, _ := newElsewhere(t, filepath.Join(p.dir, "based"), "based")
	end := p.follow(t, "based", o)
	s := o.open(t, "based")
	p.upToDate(t, "based")
	if _, err := restored(t, bucket, "based/latest"); !errors.Is(err, snapshot.ErrElsewhere) {
		t.Errorf("without trust, the replica is opened: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end()
	p = newProcess(t, p.dir, bucket, nil)
	p.open(t, "based")
	p.upToDate(t, "based")
	if _, err := restored(t, bucket, "based/latest"); err != nil {
		t.Errorf("after the store is here: %v", err)
	}
}

// S3: whatever a process has claimed, the replica of the store that comes back from it begins anew.
func TestHostileAProcessLeavesNoClaim(t *testing.T) {
	for name, next := range map[string]bool{"the same platform": false, "the next one": true} {
		t.Run(name, func(t *testing.T) {
			bucket := directory(t)
			p := newProcess(t, t.TempDir(), bucket, nil)
			l := &liar{
				rows: func(_ context.Context, after int64) ([]byte, error) { return pageFrom(t, after+1), nil },
				copies: func(_ context.Context, path string) (int64, string, error) {
					return 1 << 60, strings.Repeat("0", 16), os.WriteFile(path, []byte("not a store"), 0o600)
				},
			}
			end := p.follow(t, "freed", l)
			eventually(t, func() error {
				if state, _ := p.State("freed"); state.Revision <= 1<<60 {
					return fmt.Errorf("the state is %+v", state)
				}
				return nil
			})
			end()
			if next {
				p = newProcess(t, p.dir, bucket, nil)
			}
			s := p.open(t, "freed")
			s.put(key(0), "shared")
			eventually(t, func() error {
				have, err := restored(t, bucket, "freed/latest")
				if err == nil && have[key(0)] != "shared" {
					err = fmt.Errorf("the replica has %v", have)
				}
				return err
			})
			p.upToDate(t, "freed")
			if state, _ := p.State("freed"); state.Revision != s.Last() {
				t.Errorf("the state is %+v, and the store has revision %d", state, s.Last())
			}
		})
	}
}

// D2, D5: a process whose store was restored, so that the replica needs a new base, gets an older volume before that base is made. The stream before
// may be the only copy of what the volume lacks.
func TestAnOlderVolumeReplacesNoStreamThatWaitsForItsBase(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, func(c *replicator.Config) { c.BasePause = time.Hour })
	dir := t.TempDir()
	o, _ := newElsewhere(t, dir, "waits")
	s := o.open(t, "waits")
	p.follow(t, "waits", o)
	s.put(key(0), "old")
	has(t, bucket, "waits", key(0), "old")
	early := filepath.Join(t.TempDir(), "early.db")
	if err := s.Snapshot(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		s.put(key(1), fmt.Sprint(i))
	}
	has(t, bucket, "waits", key(1), "49")
	reopen := func(replace func() error) {
		t.Helper()
		if err := errors.Join(s.Close(), replace()); err != nil {
			t.Fatal(err)
		}
		s = o.open(t, "waits")
		s.put(key(2), "new")
	}
	is := func(want replicator.Reason) {
		t.Helper()
		eventually(t, func() error {
			if state, _ := p.State("waits"); state.Reason != want {
				return fmt.Errorf("the state is %+v", state)
			}
			return nil
		})
	}
	reopen(func() error { return snapshot.Restore(t.Context(), early, dir, t.TempDir()) })
	is(replicator.Behind)
	p.Restored("waits") // so that nothing waits any more
	reopen(func() error {
		data, err := os.ReadFile(early)
		if err != nil {
			return err
		}
		for _, end := range []string{"-wal", "-shm"} {
			if err := os.Remove(o.path + end); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return os.WriteFile(o.path, data, 0o600)
	})
	is(replicator.StoreBehind)
	if have, err := restored(t, bucket.Trusted(), "waits/latest"); err != nil || have[key(1)] != "49" {
		t.Errorf("the replica has %v (%v)", have, err)
	}
}

// D2: a platform that gets no answer from a process says so.
func TestAProcessThatDoesNotAnswerIsNotUpToDate(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, end := newElsewhere(t, t.TempDir(), "silent")
	s := o.open(t, "silent")
	p.follow(t, "silent", o)
	s.put(key(0), "first")
	has(t, bucket, "silent", key(0), "first")
	p.upToDate(t, "silent")
	end()
	eventually(t, func() error {
		if state, _ := p.State("silent"); state.Reason != replicator.Behind || state.Since.IsZero() {
			return fmt.Errorf("the state is %+v", state)
		}
		return nil
	})
}

// D2: a platform that is started again while a process sleeps finds out whether the bucket has everything.
func TestAnotherPlatformKnowsTheReplicaOfAProcessThatSleeps(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, _ := newElsewhere(t, t.TempDir(), "sleeps")
	s := o.open(t, "sleeps")
	end := p.follow(t, "sleeps", o)
	s.put(key(0), "first")
	has(t, bucket, "sleeps", key(0), "first")
	p.upToDate(t, "sleeps")
	last := s.Last()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	end()
	for moves := range int64(2) { // it has moved meanwhile, or not
		p = newProcess(t, p.dir, bucket, nil)
		p.moves = moves
		end = p.follow(t, "sleeps", o)
		p.upToDate(t, "sleeps")
		if state, _ := p.State("sleeps"); state.Revision != last || state.Time.IsZero() {
			t.Errorf("after %d moves, the state is %+v, and the store had revision %d", moves, state, last)
		}
		end()
	}
	p = newProcess(t, p.dir, bucket, nil)
	p.follow(t, "sleeps", &liar{state: func(feed.State) feed.State { return feed.State{Last: last + 1} }})
	eventually(t, func() error {
		if state, _ := p.State("sleeps"); state.Reason != replicator.Behind || state.Revision != last || state.Since.IsZero() {
			return fmt.Errorf("with another write, the state is %+v", state)
		}
		return nil
	})
}

// D2, T9: the rows beside a base are what a process appends to it, and nothing is opened here.
func TestAProcessRestoresTheReplicaOfItsStore(t *testing.T) {
	bucket := directory(t)
	p := newProcess(t, t.TempDir(), bucket, nil)
	o, _ := newElsewhere(t, t.TempDir(), "own")
	s := o.open(t, "own")
	p.follow(t, "own", o)
	s.put(key(0), "first")
	has(t, bucket, "own", key(0), "first")
	for i := range 30 {
		s.put(key(i), "second")
	}
	has(t, bucket, "own", key(29), "second")
	id, err := snapshot.ParseID("own/latest")
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(store, rows string) error{
		"": func(string, string) error { return nil },
		"cut off": func(_, rows string) error {
			info, err := os.Stat(rows)
			return errors.Join(err, os.Truncate(rows, info.Size()-10))
		},
		"another base": func(store, _ string) error {
			return errors.Join(os.Remove(store), s.Snapshot(t.Context(), store))
		},
	} {
		dir := t.TempDir()
		err := snapshot.Fetch(t.Context(), bucket, id, dir, func(store, rows, _ string) error {
			if err := spoil(store, rows); err != nil {
				t.Fatal(err)
			}
			if err := snapshot.Append(t.Context(), store, rows); err != nil {
				return err
			}
			return snapshot.Restore(t.Context(), store, filepath.Join(dir, "own"), filepath.Join(dir, "scratch"))
		})
		if name != "" {
			if err == nil {
				t.Errorf("%s: it is restored", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		opened, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(dir, "own", "store.db"), Name: "own"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.list(), (&store{opened, t}).list()); diff != "" {
			t.Error(diff)
		}
		if err := opened.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
