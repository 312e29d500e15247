// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/replicator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// storage is an S3 server in process, which can be made to fail.
type storage struct {
	*httptest.Server
	down     atomic.Bool
	requests atomic.Int64
	// before, if set, is called before a request is served.
	before atomic.Pointer[func(*http.Request)]
}

func newStorage(t *testing.T) *storage {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	backend := s3mem.New()
	if err := backend.CreateBucket("backups"); err != nil {
		t.Fatal(err)
	}
	s, serve := &storage{}, gofakes3.New(backend).Server()
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if before := s.before.Load(); before != nil {
			(*before)(r)
		}
		if s.down.Load() {
			http.Error(w, "down", http.StatusForbidden) // which the client does not retry
			return
		}
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return s
}

// holdBase has the next upload of a base wait until release is called. held is closed when it waits.
func (s *storage) holdBase(t *testing.T) (held chan struct{}, release func()) {
	t.Helper()
	held, released, ctx := make(chan struct{}), make(chan struct{}), t.Context()
	var found atomic.Bool
	hold := func(r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "-base-") && found.CompareAndSwap(false, true) {
			close(held)
			select {
			case <-released:
			case <-ctx.Done():
			}
		}
	}
	s.before.Store(&hold)
	return held, sync.OnceFunc(func() { close(released) })
}

func (s *storage) bucket(t *testing.T) *snapshot.Bucket {
	t.Helper()
	b, err := snapshot.Open("s3://backups/berth?region=us-east-1&path-style=true&endpoint=" + s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func directory(t *testing.T) *snapshot.Bucket {
	t.Helper()
	dir, err := os.MkdirTemp("", "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // an upload that was given up may still be written
		if err := wait.PollUntilContextTimeout(context.Background(), 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
			return os.RemoveAll(dir) == nil, nil
		}); err != nil {
			t.Error(err)
		}
	})
	b, err := snapshot.Open("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const storeID = "0123456789abcdef"

// process is a process with the data directory dir.
type process struct {
	*replicator.Replicator
	dir         string
	moves       int64
	destination atomic.Pointer[snapshot.Bucket]
}

func newProcess(t *testing.T, dir string, bucket *snapshot.Bucket, change func(*replicator.Config)) *process {
	t.Helper()
	p := &process{dir: dir}
	p.destination.Store(bucket)
	c := replicator.Config{
		Destination: func(string) *snapshot.Bucket { return p.destination.Load() },
		SpaceDir:    func(space string) string { return filepath.Join(dir, space) },
		StoreID:     func(string) (string, error) { return storeID, nil },
		Moves:       func(string) (int64, error) { return p.moves, nil },
		Scratch:     filepath.Join(t.TempDir(), "scratch"), Delay: time.Millisecond, BasePause: time.Millisecond, Logger: klog.Background(),
	}
	if change != nil {
		change(&c)
	}
	var err error
	if p.Replicator, err = replicator.New(c); err != nil {
		t.Fatal(err)
	}
	return p
}

// store is the open store of a space.
type store struct {
	*kine.Store
	t *testing.T
}

func (p *process) open(t *testing.T, space string) *store {
	t.Helper()
	dir := filepath.Join(p.dir, space)
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pki", "ca.key"), []byte("secret of "+space), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(dir, "store.db"), Name: space, Replica: p.Of(space), MaxBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &store{s, t}
}

func (s *store) put(key, value string) {
	s.t.Helper()
	ctx := context.Background()
	got, err := s.Client().Kubernetes.Get(ctx, key, kubernetes.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var revision int64
	if got.KV != nil {
		revision = got.KV.ModRevision
	}
	response, err := s.Client().Kubernetes.OptimisticPut(ctx, key, []byte(value), revision, kubernetes.PutOptions{GetOnFailure: revision > 0})
	if err != nil || !response.Succeeded {
		s.t.Fatalf("put %s: %v (%v)", key, response, err)
	}
}

func (s *store) delete(key string) {
	s.t.Helper()
	got, err := s.Client().Kubernetes.Get(context.Background(), key, kubernetes.GetOptions{})
	if err == nil {
		_, err = s.Client().Kubernetes.OptimisticDelete(context.Background(), key, got.KV.ModRevision, kubernetes.DeleteOptions{GetOnFailure: true})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) list() map[string]string {
	s.t.Helper()
	response, err := s.Client().Kubernetes.List(context.Background(), "/registry/configmaps/", kubernetes.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	found := map[string]string{}
	for _, kv := range response.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found
}

// key is that of the object i.
func key(i int) string { return fmt.Sprintf("/registry/configmaps/default/%04d", i) }

// eventuallyTimeout is more than the product's longest pauses between attempts, on a busy machine.
const eventuallyTimeout = 3 * time.Minute

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, eventuallyTimeout, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	}); err != nil {
		t.Fatal(last)
	}
}

// upToDate waits until a replica has everything.
func (p *process) upToDate(t *testing.T, space string) {
	t.Helper()
	eventually(t, func() error {
		lag, _ := p.Lag(space)
		if state, _ := p.State(space); state.Reason != replicator.UpToDate || lag > 0 {
			return fmt.Errorf("the replica of %s is %+v, lag %s", space, state, lag)
		}
		return nil
	})
}

// restored returns what a space restored from its replica has.
func restored(t *testing.T, bucket *snapshot.Bucket, name string) (map[string]string, error) {
	t.Helper()
	id, err := snapshot.ParseID(name)
	if err != nil {
		t.Fatal(err)
	}
	if id, err = bucket.Find(t.Context(), id); err != nil {
		return nil, err
	}
	dir := t.TempDir()
	if err := snapshot.Replace(t.Context(), bucket, id, dir, filepath.Join(dir, ".scratch")); err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(filepath.Join(dir, id.Space, "pki", "ca.key")); err != nil || string(data) != "secret of "+id.Space {
		return nil, errors.Join(err, fmt.Errorf("the key is %q", data))
	}
	opened, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(dir, id.Space, "store.db"), Name: id.Space})
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return (&store{opened, t}).list(), nil
}
