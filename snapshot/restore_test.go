// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
)

// taken is a snapshot of a space, which holds a service.
func taken(t *testing.T, s *spaces, bucket *snapshot.Bucket, name string) snapshot.ID {
	t.Helper()
	var service bytes.Buffer
	err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(&corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
	}, &service)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, name, "/registry/services/specs/default/web", service.String())
	info, err := keeper(t, s, bucket, nil).Take(t.Context(), name, bucket)
	if err != nil {
		t.Fatal(err)
	}
	id, err := snapshot.ParseID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func given(_ context.Context, asked []*corev1.Service) ([]*corev1.Service, error) {
	return asked, nil
}

// D2: a snapshot takes the place of what another space holds, which is kept
// beside it; that one's keys stay, and its clients see that all is another.
func TestASnapshotTakesThePlaceOfAnotherSpace(t *testing.T) {
	s := newSpaces(t, "from", "into")
	bucket := open(t, "file://"+t.TempDir())
	id := taken(t, s, bucket, "from")
	for i := range 3 { // the second is from a store whose revision is behind
		if s.awake["into"] == nil {
			s.wake(t, "into")
		}
		if i == 0 {
			s.put(t, "into", "/registry/configmaps/default/own", "x")
		}
		before := s.Revision("into")
		stop := func(context.Context) error { s.sleep(t, "into"); return nil }
		changes, err := snapshot.Clone(t.Context(), bucket, id, "into", s.dir, t.TempDir(), stop, given)
		if err != nil || changes.Services != 1 {
			t.Fatalf("%+v (%v)", changes, err)
		}
		s.wake(t, "into")
		if first, own := s.get(t, "into", "/registry/configmaps/default/first"), s.get(t, "into", "/registry/configmaps/default/own"); first != "of from" || own != "" {
			t.Errorf("it holds %q and %q", first, own)
		}
		if after := s.Revision("into"); after <= before {
			t.Errorf("its revision was %d, and is %d", before, after)
		}
		if key, err := os.ReadFile(filepath.Join(s.dir, "into", "pki", "ca.key")); err != nil || string(key) != "secret of into" {
			t.Errorf("its key is %q (%v)", key, err)
		}
		if i > 0 {
			continue
		}
		if err := os.Rename(s.path("into")+".replaced", filepath.Join(s.dir, "from", "kept.db")); err != nil {
			t.Fatal(err)
		}
		kept, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(s.dir, "from", "kept.db")})
		if err != nil {
			t.Fatal(err)
		}
		s.awake["kept"] = kept
		if own := s.get(t, "kept", "/registry/configmaps/default/own"); own != "x" {
			t.Errorf("what it was is not kept: %q", own)
		}
	}
	checkModes(t, filepath.Join(s.dir, "into"))
}

// D2: whatever step of it fails, the space is what it was, and before the
// snapshot was found sound nothing was done to it at all.
func TestASpaceWhosePlaceIsNotTakenIsAsItWas(t *testing.T) {
	s := newSpaces(t, "from", "into", "moved")
	dir := t.TempDir()
	bucket := open(t, "file://"+dir)
	id := taken(t, s, bucket, "from")
	damaged := taken(t, s, bucket, "moved")
	path := filepath.Join(dir, damaged.String()+".tar.zst")
	if err := os.Truncate(path, 1000); err != nil {
		t.Fatal(err)
	}
	s.sleep(t, "into")
	errNo := errors.New("no")
	no := func(context.Context) error { return errNo }
	yes := func(context.Context) error { return nil }
	var leave context.CancelFunc
	for reason, c := range map[string]struct {
		id      snapshot.ID
		prepare func(context.Context) error
		reserve snapshot.Reserve
		want    error
	}{
		"the snapshot is damaged": {damaged, func(context.Context) error { t.Error("prepared for a damaged one"); return nil }, given, snapshot.ErrDamaged},
		"it can't be stopped":     {id, no, given, errNo},
		"the host has no address": {id, yes, func(context.Context, []*corev1.Service) ([]*corev1.Service, error) { return nil, errNo }, errNo},
		"it woke meanwhile":       {id, func(ctx context.Context) error { return s.Wake(ctx, "into") }, given, kine.ErrInUse},
		"who asked has gone":      {id, func(context.Context) error { leave(); return nil }, given, context.Canceled},
		"who asked goes with the services": {id, yes, func(ctx context.Context, vs []*corev1.Service) ([]*corev1.Service, error) {
			leave()
			return given(ctx, vs)
		}, context.Canceled},
		"what was kept of it is in the way": {id, yes, given, os.ErrExist},
	} {
		if errors.Is(c.want, os.ErrExist) {
			if err := os.MkdirAll(filepath.Join(s.path("into")+".replaced", "full"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		_, err := snapshot.Clone(ctx, bucket, c.id, "into", s.dir, t.TempDir(), c.prepare, c.reserve)
		leave()
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", reason, err, c.want)
		}
		if s.awake["into"] == nil {
			s.wake(t, "into")
		}
		if first := s.get(t, "into", "/registry/configmaps/default/first"); first != "of into" {
			t.Errorf("%s: it holds %q", reason, first)
		}
		s.sleep(t, "into")
		if errors.Is(c.want, os.ErrExist) {
			if err := os.RemoveAll(s.path("into") + ".replaced"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// D1, D2: a store that is damaged, or is none any more, is replaced all the same,
// by the same snapshot each time; and its clients, whose revisions earlier
// restores have brought far, see each time that all is another.
func TestADamagedStoreIsReplacedAgainAndAgain(t *testing.T) {
	s := newSpaces(t, "from", "into")
	bucket := open(t, "file://"+t.TempDir())
	id := taken(t, s, bucket, "from")
	path := s.path("into")
	stop := func(context.Context) error { return nil }
	restore := func(reason string, damage func(t *testing.T, path string)) {
		t.Helper()
		before := s.Revision("into")
		s.sleep(t, "into")
		damage(t, path)
		if _, err := snapshot.Clone(t.Context(), bucket, id, "into", s.dir, t.TempDir(), stop, given); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		s.wake(t, "into")
		if after := s.Revision("into"); after <= before {
			t.Errorf("%s: its revision was %d, and is %d", reason, before, after)
		}
		if first := s.get(t, "into", "/registry/configmaps/default/first"); first != "of from" {
			t.Errorf("%s: it holds %q", reason, first)
		}
	}
	sound := func(*testing.T, string) {}
	for range 2 {
		restore("it is sound", sound)
	}
	for reason, damage := range damages() {
		restore(reason, damage)
	}
	restore("it is sound again", sound)
}

// damages are what may have become of a store.
func damages() map[string]func(t *testing.T, path string) {
	return map[string]func(t *testing.T, path string){
		"it is cut off": func(t *testing.T, path string) {
			if err := os.Truncate(path, 5000); err != nil {
				t.Fatal(err)
			}
		},
		"it is empty": func(t *testing.T, path string) {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		},
		"it is something else": func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("else"), 5000), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a journal is beside it": func(t *testing.T, path string) {
			if err := os.WriteFile(path+"-journal", []byte("of another"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// S3: what the process of a dedicated space on another machine has sent is opened in this one only if somebody says so,
// whatever is made of it; and what this process has written, or the same machine, always.
func TestHostileAStoreFromElsewhereIsNotOpenedHere(t *testing.T) {
	for reason, test := range map[string]struct{ elsewhere, sent, foreign, asleep, received, refused bool }{
		"from another machine":                    {true, true, true, false, false, true},
		"from a process of this machine":          {true, true, false, false, false, false},
		"from one that has the store of a pod":    {true, true, false, false, true, true},
		"from this process":                       {false, false, true, false, false, false},
		"to be moved elsewhere, and not sent yet": {true, false, true, true, false, false},
		"sent by a space that is deleted":         {false, false, true, true, true, true},
		"the same, and Berth runs no pods now":    {false, false, false, true, true, true},
		"sent, and moved before and afterwards":   {false, true, true, false, false, true},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newSpaces(t, "from")
			s.sends = map[string]bool{"from": test.sent}
			if test.asleep {
				s.sleep(t, "from")
			}
			if test.received {
				if err := snapshot.MarkReceived(filepath.Join(s.dir, "from")); err != nil {
					t.Fatal(err)
				}
			}
			bucket := open(t, "file://"+t.TempDir())
			k, err := snapshot.NewKeeper(snapshot.Config{
				Dir: s.dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Spaces: s, Clock: s.clock,
				Elsewhere: func(string) bool { return test.elsewhere }, Foreign: test.foreign,
			})
			if err != nil {
				t.Fatal(err)
			}
			info, err := k.Take(t.Context(), "from", bucket)
			if err != nil {
				t.Fatal(err)
			}
			id := snapshot.ID{Space: info.Space, Time: info.Time}
			prepared := func(context.Context) error { return nil }
			reserved := func(context.Context, []*corev1.Service) ([]*corev1.Service, error) { return nil, nil }
			for what, restore := range map[string]func(*snapshot.Bucket) error{
				"in its place": func(b *snapshot.Bucket) error { return snapshot.Replace(t.Context(), b, id, t.TempDir(), t.TempDir()) },
				"as another": func(b *snapshot.Bucket) error {
					_, err := snapshot.Clone(t.Context(), b, id, "into", t.TempDir(), t.TempDir(), prepared, reserved)
					return err
				},
			} {
				if err := restore(bucket); errors.Is(err, snapshot.ErrElsewhere) != test.refused || err != nil && !test.refused {
					t.Errorf("%s: %v", what, err)
				}
				if err := restore(bucket.Trusted()); err != nil {
					t.Errorf("%s, trusted: %v", what, err)
				}
			}
			opened := false
			if err := snapshot.Fetch(t.Context(), bucket, id, t.TempDir(), func(_, _, _ string) error { opened = true; return nil }); err != nil || !opened {
				t.Errorf("for others to restore: %v", err)
			}
		})
	}
}

// S3: a restore replaces a store that came from a pod without opening it.
func TestHostileAReceivedStoreIsReplacedUnopened(t *testing.T) {
	s := newSpaces(t, "from")
	bucket := open(t, "file://"+t.TempDir())
	info, err := keeper(t, s, bucket, nil).Take(t.Context(), "from", bucket)
	if err != nil {
		t.Fatal(err)
	}
	s.sleep(t, "from")
	dir := filepath.Join(s.dir, "from")
	db, err := sql.Open("sqlite3", filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA journal_mode=DELETE; DROP INDEX kine_lease_index"); err != nil { // which opening the store would make
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(), snapshot.MarkReceived(dir)); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: info.Space, Time: info.Time}, s.dir, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if replaced, err := os.ReadFile(filepath.Join(dir, "store.db.replaced")); err != nil || !bytes.Equal(replaced, written) {
		t.Errorf("the store before was opened (%v)", err)
	}
	if snapshot.IsReceived(dir) {
		t.Error("the restored store is marked as one from a pod")
	}
}
