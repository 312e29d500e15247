// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/klog/v2"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
)

// buckets are the URLs of one of each kind; the S3 one is served in process.
func buckets(t *testing.T) map[string]string {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	storage := s3mem.New()
	if err := storage.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(storage).Server())
	t.Cleanup(server.Close)
	return map[string]string{
		"directory": "file://" + filepath.Join(t.TempDir(), "snap shots", "here"),
		"S3":        "s3://backups/berth/prod?region=us-east-1&path-style=true&endpoint=" + server.URL,
	}
}

func open(t *testing.T, url string) *snapshot.Bucket {
	t.Helper()
	b, err := snapshot.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// spaces are stores in a directory, open or not.
type spaces struct {
	dir   string
	clock *clocktesting.FakeClock
	awake map[string]*kine.Store
	sends map[string]bool // those that another process sends
}

func newSpaces(t *testing.T, names ...string) *spaces {
	t.Helper()
	s := &spaces{dir: t.TempDir(), clock: clocktesting.NewFakeClock(time.Now()), awake: map[string]*kine.Store{}}
	for _, name := range names {
		if err := s.Wake(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		s.put(t, name, "/registry/configmaps/default/first", "of "+name)
		keys := filepath.Join(s.dir, name, "pki")
		if err := os.Mkdir(keys, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(keys, "ca.key"), filepath.Join(s.dir, name, "node.key")} {
			if err := os.WriteFile(path, []byte("secret of "+name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		for name := range s.awake {
			s.sleep(t, name)
		}
	})
	return s
}

func (s *spaces) path(name string) string { return filepath.Join(s.dir, name, "store.db") }

func (s *spaces) put(t *testing.T, name, key, value string) {
	t.Helper()
	response, err := s.awake[name].Client().Kubernetes.OptimisticPut(t.Context(), key, []byte(value), 0, kubernetes.PutOptions{})
	if err != nil || !response.Succeeded {
		t.Fatalf("put %s: %v (%v)", key, response, err)
	}
}

func (s *spaces) get(t *testing.T, name, key string) string {
	t.Helper()
	response, err := s.awake[name].Client().Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if response.KV == nil {
		return ""
	}
	return string(response.KV.Value)
}

func (s *spaces) sleep(t *testing.T, name string) {
	t.Helper()
	if err := s.awake[name].Close(); err != nil {
		t.Error(err)
	}
	delete(s.awake, name)
}

func (s *spaces) wake(t *testing.T, name string) {
	t.Helper()
	if err := s.Wake(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

// Names implements [snapshot.Spaces], as all below.
func (s *spaces) Names() (names []string) {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (s *spaces) Wake(ctx context.Context, name string) (err error) {
	s.awake[name], err = kine.Open(ctx, kine.Options{Path: s.path(name), Name: name})
	return err
}

func (s *spaces) Revision(name string) int64 {
	if store := s.awake[name]; store != nil {
		stats, _ := store.Stats(context.Background())
		return stats.Revision
	}
	return 0
}

func (s *spaces) Snapshot(ctx context.Context, name, path string) (elsewhere bool, err error) {
	if store := s.awake[name]; store != nil {
		return s.sends[name], store.Snapshot(ctx, path)
	}
	return false, snapshot.ErrAsleep
}

func keeper(t *testing.T, s *spaces, bucket *snapshot.Bucket, observe func(space, result string)) *snapshot.Keeper {
	t.Helper()
	k, err := snapshot.NewKeeper(snapshot.Config{
		Dir: s.dir, Scratch: filepath.Join(t.TempDir(), "scratch"), Spaces: s, Bucket: bucket, Every: time.Hour, Keep: 3,
		Observe: observe, Clock: s.clock, Logger: klog.Background(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// D2: a space that is awake, and one that sleeps, come back from either kind of
// bucket as they were; the keys that they are known by with them.
func TestASpaceIsRestoredFromItsSnapshot(t *testing.T) {
	for kind, url := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			s := newSpaces(t, "awake", "quiet")
			s.sleep(t, "quiet")
			bucket := open(t, url)
			k := keeper(t, s, bucket, nil)
			for _, name := range []string{"awake", "quiet"} {
				info, err := k.Take(t.Context(), name, bucket)
				if err != nil {
					t.Fatal(err)
				}
				id, err := snapshot.ParseID(info.ID)
				if err != nil {
					t.Fatal(err)
				}
				if s.awake[name] == nil {
					s.wake(t, name)
				}
				s.put(t, name, "/registry/configmaps/default/later", "is to go")
				if err := snapshot.Replace(t.Context(), bucket, id, s.dir, t.TempDir()); !errors.Is(err, kine.ErrInUse) {
					t.Errorf("%s: restored while it is open: %v", name, err)
				}
				s.sleep(t, name)
				if err := snapshot.Replace(t.Context(), bucket, id, s.dir, t.TempDir()); err != nil {
					t.Fatal(err)
				}
				s.wake(t, name)
				if first, later := s.get(t, name, "/registry/configmaps/default/first"), s.get(t, name, "/registry/configmaps/default/later"); first != "of "+name || later != "" {
					t.Errorf("%s: holds %q and %q", name, first, later)
				}
				s.sleep(t, name)

				// On a machine where nothing is left of it.
				elsewhere := t.TempDir()
				if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: name, Time: id.Time}, elsewhere, t.TempDir()); err != nil {
					t.Fatal(err)
				}
				key, err := os.ReadFile(filepath.Join(elsewhere, name, "pki", "ca.key"))
				if err != nil || string(key) != "secret of "+name {
					t.Errorf("%s: its key is %q (%v)", name, key, err)
				}
			}
			checkModes(t, s.dir)
		})
	}
}

// Snapshots hold keys: nobody else may read one, at any moment.
func checkModes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && path != dir {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestBucketsListFindAndDelete(t *testing.T) {
	for kind, url := range buckets(t) {
		t.Run(kind, func(t *testing.T) {
			s := newSpaces(t, "a", "a-b")
			bucket := open(t, url)
			k := keeper(t, s, bucket, nil)
			if infos, err := bucket.List(t.Context(), ""); err != nil || len(infos) != 0 {
				t.Errorf("an empty bucket lists %v (%v)", infos, err)
			}
			var last string
			for range 3 {
				for _, name := range []string{"a", "a-b"} {
					info, err := k.Take(t.Context(), name, bucket)
					if err != nil {
						t.Fatal(err)
					}
					last = info.ID
				}
				s.clock.Step(time.Second)
			}
			infos, err := bucket.List(t.Context(), "")
			if err != nil || len(infos) != 6 || infos[0].Space != "a" || infos[3].ID != last || infos[0].Bytes == 0 {
				t.Fatalf("lists %v (%v)", infos, err)
			}
			if infos, err = bucket.List(t.Context(), "a"); err != nil || len(infos) != 3 {
				t.Errorf("of a: %v (%v)", infos, err)
			}
			newest, err := bucket.Find(t.Context(), snapshot.ID{Space: "a-b"})
			if err != nil || newest.String() != last {
				t.Errorf("the newest is %v (%v), want %s", newest, err, last)
			}
			if err := bucket.Delete(t.Context(), newest); err != nil {
				t.Fatal(err)
			}
			if _, err := bucket.Find(t.Context(), newest); err == nil {
				t.Error("it is there after its end")
			}
			if err := snapshot.Replace(t.Context(), bucket, newest, t.TempDir(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "berth snapshot list") {
				t.Errorf("restored after its end: %v", err)
			}
		})
	}
}

// A bucket that is not as it was left is found out before anything is touched.
func TestADamagedSnapshotIsRefused(t *testing.T) {
	s := newSpaces(t, "a", "b")
	dir := t.TempDir()
	bucket := open(t, "file://"+dir)
	info, err := keeper(t, s, bucket, nil).Take(t.Context(), "a", bucket)
	if err != nil {
		t.Fatal(err)
	}
	id, err := snapshot.ParseID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, info.ID+".tar.zst")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkModes(t, dir)
	s.sleep(t, "a")
	before, err := os.ReadFile(s.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	broken := map[string][]byte{"empty": nil, "half": whole[:len(whole)/2], "cut at its end": whole[:len(whole)-5], "something else": []byte("no snapshot")}
	for i := 0; i < len(whole); i += len(whole)/12 + 1 {
		flipped := slices.Clone(whole)
		flipped[i] ^= 0x10
		broken[fmt.Sprintf("byte %d", i)] = flipped
	}
	for reason, data := range broken {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := snapshot.Replace(t.Context(), bucket, id, s.dir, t.TempDir()); err == nil {
			// Not every bit of a compressed file means something.
			s.wake(t, "a")
			if got := s.get(t, "a", "/registry/configmaps/default/first"); got != "of a" || !strings.HasPrefix(reason, "byte") {
				t.Errorf("%s: restored, and holds %q", reason, got)
			}
			s.sleep(t, "a")
			if before, err = os.ReadFile(s.path("a")); err != nil {
				t.Fatal(err)
			}
		}
		if after, err := os.ReadFile(s.path("a")); err != nil || !slices.Equal(before, after) {
			t.Fatalf("%s: the space's store was touched (%v)", reason, err)
		}
	}
	// Somebody has put one space's snapshot in another's place.
	moved := filepath.Join(dir, "b", filepath.Base(path))
	if err := os.MkdirAll(filepath.Dir(moved), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(moved, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s.sleep(t, "b")
	if err := snapshot.Replace(t.Context(), bucket, snapshot.ID{Space: "b", Time: id.Time}, s.dir, t.TempDir()); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("a snapshot of another space: %v", err)
	}
}

func TestURLsThatNameNoBucketAreRefused(t *testing.T) {
	for url, says := range map[string]string{
		"":                              "must be file:///DIRECTORY or s3://BUCKET",
		"/var/backups":                  "must be file:///DIRECTORY or s3://BUCKET",
		"file://backups":                "must be file:///DIRECTORY or s3://BUCKET",
		"gs://bucket":                   "must be file:///DIRECTORY or s3://BUCKET",
		"s3:///prefix":                  "must be file:///DIRECTORY or s3://BUCKET",
		"s3://bucket?regoin=x":          `unknown parameter "regoin"`,
		"s3://bucket?endpoint=storage":  "parameter endpoint",
		"s3://bucket?path-style=maybe":  "parameter path-style",
		"s3://key:hidden@bucket/prefix": "the URL must not contain a password",
		"file:///x?create=true":         "unknown parameter",
	} {
		_, err := snapshot.Open(url)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: got %v, want %q", url, err, says)
		}
	}
	for _, id := range []string{"", "/", "../x", ".hidden", "a/b", "a/20260101T000000Z", "a/20260101T000000.000Z/..", `a\b`} {
		if got, err := snapshot.ParseID(id); err == nil {
			t.Errorf("%q is read as %v", id, got)
		}
	}
}
