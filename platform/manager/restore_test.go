// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/operations"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
)

// places stand for a shard, whose spaces fail to stop and to wake as told.
type places struct {
	there, held map[string]bool
	stays       bool // a space that is stopped keeps its place
	stop, wake  error
	stopping    func()
	warmUps     int
}

func (p *places) Status(space string) (shard.Status, bool) { return shard.Status{}, p.there[space] }

func (p *places) Hold(space string) func() {
	p.held[space] = true
	return func() { delete(p.held, space) }
}

func (p *places) StopSpace(_ context.Context, space string) error {
	if p.stopping != nil {
		p.stopping()
	}
	if !p.stays {
		delete(p.there, space)
	}
	return p.stop
}

func (p *places) Prepare(context.Context, string) error { return nil }

func (p *places) AdoptServices(context.Context, string, []*corev1.Service) ([]*corev1.Service, error) {
	return nil, errors.New("no service is in the snapshot")
}

func (p *places) Add(space string) error {
	p.there[space] = true
	return nil
}

func (p *places) WarmUp(string) { p.warmUps++ }

func (p *places) Wake(context.Context, string) error { return p.wake }

// The rest is what a keeper asks of spaces that sleep.

func (p *places) Names() []string { return nil }

func (p *places) Snapshot(context.Context, string, string) (bool, error) {
	return false, snapshot.ErrAsleep
}

func (p *places) Revision(string) int64 { return 0 }

// restorables are the spaces from and into, which sleep, and a snapshot of from.
func restorables(t *testing.T) (*snapshots, *places, *snapshot.Bucket) {
	t.Helper()
	s := &snapshots{
		changes: &operations.Changes{}, transfers: &operations.Transfers{}, dataDir: t.TempDir(), logger: klog.Background(), elsewhere: func(string) dedicatedSpace { return nil },
		ensure:   func(context.Context, string) error { return nil },
		checkOwn: func(context.Context, string) error { return nil },
		lost:     func(context.Context, string) (string, int64, error) { return "", 0, nil },
	}
	for _, name := range []string{"from", "into"} {
		write(t, s, name)
	}
	p := &places{there: map[string]bool{"from": true, "into": true}, held: map[string]bool{}}
	s.shard = p
	bucket, err := snapshot.Open("file://" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := snapshot.NewKeeper(snapshot.Config{
		Dir: datadir.Spaces(s.dataDir), Scratch: datadir.Scratch(s.dataDir), Spaces: p, Logger: klog.Background(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keeper.Take(t.Context(), "from", bucket); err != nil {
		t.Fatal(err)
	}
	return s, p, bucket
}

func storeOf(s *snapshots, space string) string {
	return filepath.Join(s.dataDir, "spaces", space, "store.db")
}

// write makes a space's store hold its name.
func write(t *testing.T, s *snapshots, space string) {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: storeOf(s, space)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/configmaps/default/name", []byte(space), 0, kubernetes.PutOptions{})
	if err = errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
}

// holds is the name that a space's store holds.
func holds(t *testing.T, s *snapshots, space string) string {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: storeOf(s, space)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := store.Client().Kubernetes.Get(t.Context(), "/registry/configmaps/default/name", kubernetes.GetOptions{})
	if err = errors.Join(err, store.Close()); err != nil || got.KV == nil {
		t.Fatalf("%v (%v)", got, err)
	}
	return string(got.KV.Value)
}

// D2: a space is replaced whatever state it is in, and goes on with what it has
// if it is not; what comes of a restore is told as it is.
func TestASpaceIsReplacedWhateverStateItIsIn(t *testing.T) {
	errNo := errors.New("no")
	for reason, c := range map[string]struct {
		set   func(*testing.T, *snapshots, *places)
		holds string
		err   string // part of it
	}{
		"it sleeps": {func(*testing.T, *snapshots, *places) {}, "from", ""},
		"its store is damaged, so it stops with an error": {func(t *testing.T, s *snapshots, p *places) {
			t.Helper()
			p.stop = kine.ErrDamaged
			if err := os.Truncate(storeOf(s, "into"), 5000); err != nil {
				t.Fatal(err)
			}
		}, "from", ""},
		"it does not stop":             {func(_ *testing.T, _ *snapshots, p *places) { p.stays, p.stop = true, errNo }, "into", "restore snapshot"},
		"it does not wake":             {func(_ *testing.T, _ *snapshots, p *places) { p.wake = errNo }, "from", "space into was restored from snapshot from/"},
		"it has no place, but a store": {func(_ *testing.T, _ *snapshots, p *places) { delete(p.there, "into") }, "from", ""},
		"it is in a process of its own": {func(_ *testing.T, s *snapshots, _ *places) {
			s.elsewhere = inProcess("into", &sentStore{})
		}, "into", "process of its own"},
	} {
		t.Run(reason, func(t *testing.T) {
			s, p, bucket := restorables(t)
			c.set(t, s, p)
			p.stopping = func() {
				if !p.held["into"] {
					t.Error("it is stopped before its clients are told to wait")
				}
			}
			_, err := s.restore(t.Context(), bucket, "from", "into", true)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("the restore: %v, want %q", err, c.err)
			}
			if got := holds(t, s, "into"); got != c.holds {
				t.Errorf("it holds what is of %s, want of %s", got, c.holds)
			}
			if !p.there["into"] || len(p.held) > 0 {
				t.Errorf("after it the spaces are %v, held %v", p.there, p.held)
			}
		})
	}
}

// A restore that fails after the stop has the space go on with what it has.
func TestASpaceThatWasStoppedInVainGoesOn(t *testing.T) {
	s, p, bucket := restorables(t)
	if err := os.MkdirAll(filepath.Join(storeOf(s, "into")+".replaced", "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.restore(t.Context(), bucket, "from", "into", true); err == nil {
		t.Error("the restore worked")
	}
	if got := holds(t, s, "into"); got != "into" || !p.there["into"] || p.warmUps != 1 || len(p.held) > 0 {
		t.Errorf("it holds what is of %s; %+v", got, p)
	}
}

// One restore is made at a time, and nobody waits for it without knowing.
func TestARestoreIsRefusedDuringAnother(t *testing.T) {
	s, p, bucket := restorables(t)
	var during error
	p.stopping = func() { _, during = s.restore(t.Context(), bucket, "from", "", false) }
	if _, err := s.restore(t.Context(), bucket, "from", "into", true); err != nil {
		t.Error(err)
	}
	if !apierrors.IsConflict(during) || !strings.Contains(during.Error(), "another restore is in progress") {
		t.Errorf("another one during it: %v", during)
	}
	if _, err := s.restore(t.Context(), bucket, "from", "into", true); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// The remedy that is named must be one that works.
func TestASpaceInAProcessOfItsOwnIsNotToBeRestoredInItsPlace(t *testing.T) {
	s, _, bucket := restorables(t)
	s.elsewhere = inProcess("from", &sentStore{})
	for _, replace := range []bool{false, true} {
		if _, err := s.restore(t.Context(), bucket, "from", "from", replace); err == nil || !strings.Contains(err.Error(), "process of its own") {
			t.Errorf("replaced %t: %v", replace, err)
		}
	}
}

// inProcess has one space be in a process of its own.
func inProcess(space string, process dedicatedSpace) func(string) dedicatedSpace {
	return func(name string) dedicatedSpace {
		if name == space {
			return process
		}
		return nil
	}
}

// sentStore is a process that keeps what it is sent.
type sentStore struct {
	store, rows []byte
	restore     bool
	woken       int
}

func (s *sentStore) PutStore(_ context.Context, path string, restore bool) (err error) {
	s.restore = restore
	s.store, err = os.ReadFile(path)
	return err
}

func (s *sentStore) PutReplica(ctx context.Context, path, rows string) (err error) {
	s.rows, err = os.ReadFile(rows)
	return errors.Join(err, s.PutStore(ctx, path, true))
}

func (s *sentStore) Wake(context.Context) error {
	s.woken++
	return nil
}

// D2, T9: a space in a process of its own is restored there: what it wrote is not opened in the process of others.
func TestASpaceInAProcessOfItsOwnIsRestoredThere(t *testing.T) {
	s, p, bucket := restorables(t)
	before, err := os.ReadFile(storeOf(s, "from"))
	if err != nil {
		t.Fatal(err)
	}
	process := &sentStore{}
	s.elsewhere = inProcess("from", process)
	p.stopping = func() { t.Error("the shard is told to stop it") }
	if _, err := s.restore(t.Context(), bucket, "from", "", false); err != nil {
		t.Fatal(err)
	}
	if !process.restore || !bytes.HasPrefix(process.store, []byte("SQLite format 3")) || process.woken != 1 {
		t.Errorf("the process got %d bytes, as a snapshot: %t; and was woken %d times", len(process.store), process.restore, process.woken)
	}
	own, err := datadir.StoreID(s.dataDir, "from")
	if err != nil {
		t.Fatal(err)
	}
	replicate(t, s, bucket, "from", "from", own)
	*process = sentStore{}
	if _, err := s.restore(t.Context(), bucket, "from/latest", "", false); err != nil {
		t.Fatal(err)
	}
	if !process.restore || !bytes.HasPrefix(process.store, []byte("SQLite format 3")) || process.rows == nil || process.woken != 1 {
		t.Errorf("of the replica, the process got %d bytes, and %d of rows; and was woken %d times", len(process.store), len(process.rows), process.woken)
	}
	if after, err := os.ReadFile(storeOf(s, "from")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file here has changed (%v)", err)
	}
}

// D1: a space whose store is in a pod that is not served now is neither replaced nor cloned to: its volume would be
// deleted.
func TestASpaceWhoseStoreIsInAPodThatIsNotServedIsNotRestored(t *testing.T) {
	s, p, bucket := restorables(t)
	p.stopping = func() { t.Error("it is stopped") }
	for _, name := range []string{"from", "into", "gone"} {
		dir := datadir.Space(s.dataDir, name)
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, storeLocationFile), []byte("{}"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, as := range []string{"", "into", "gone"} {
		if _, err := s.restore(t.Context(), bucket, "from", as, true); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "is in its pod") {
			t.Errorf("restored as %q: %v", as, err)
		}
	}
}

// D1: until a space has been moved to its pod, the store here counts, and a restore in the pod would be overwritten.
func TestASpaceIsNotRestoredWhileItIsMovedToItsPod(t *testing.T) {
	s, _, bucket := restorables(t)
	process := &sentStore{}
	s.elsewhere, s.pods = inProcess("from", process), true
	if _, err := s.restore(t.Context(), bucket, "from", "", false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "being moved to its pod") {
		t.Errorf("before it is moved: %v", err)
	}
	if process.store != nil {
		t.Error("the pod got a store")
	}
	if err := os.WriteFile(filepath.Join(s.dataDir, "spaces", "from", storeLocationFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.restore(t.Context(), bucket, "from", "", false); err != nil || process.store == nil {
		t.Errorf("after it: %d bytes (%v)", len(process.store), err)
	}
}

// replicate puts the store of a space into the replica of a space.
func replicate(t *testing.T, s *snapshots, bucket *snapshot.Bucket, space, as, store string) {
	t.Helper()
	copied, err := snapshot.OpenCopied(t.Context(), storeOf(s, space))
	if err == nil {
		_, err = bucket.Replica(as).PutBase(t.Context(), snapshot.Stream{Store: store, Seq: 1, Run: "01234567"}, copied, filepath.Dir(storeOf(s, space)), t.TempDir(), time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// D2: SPACE/latest is the replica of the store that the space has, or that its object names, and not that of an earlier space of the name,
// which another tenant may have had, even if it was replicated later.
func TestLatestIsTheReplicaOfTheSpaceItself(t *testing.T) {
	const other = "0123456789abcdef"
	s, _, bucket := restorables(t)
	replicate(t, s, bucket, "into", "from", other) // "into" is the store of another tenant
	own, err := datadir.StoreID(s.dataDir, "from")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.restore(t.Context(), bucket, "from/latest", "", false); err == nil {
		t.Error("the store of another space was restored")
	}
	replicate(t, s, bucket, "from", "from", own)
	replicate(t, s, bucket, "into", "from", "fedcba9876543210") // the last one
	restored, err := s.restore(t.Context(), bucket, "from/latest", "", false)
	if err != nil || restored.Snapshot != "from/latest-"+own || holds(t, s, "from") != "from" {
		t.Errorf("restored %+v, which has %q (%v)", restored, holds(t, s, "from"), err)
	}
	restored, err = s.restore(t.Context(), bucket, "from/latest-"+other, "", false)
	if err != nil || holds(t, s, "from") != "into" {
		t.Errorf("restored by its ID %+v, which has %q (%v)", restored, holds(t, s, "from"), err)
	}
	s.lost = func(context.Context, string) (string, int64, error) { return other, 0, nil }
	if id, err := s.ofSpace(t.Context(), snapshot.ID{Space: "gone", Latest: true}); err != nil || id.Store != other {
		t.Errorf("of a space whose directory was lost, got %+v (%v)", id, err)
	}
}
