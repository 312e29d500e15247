// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

// storeServer has the process of a dedicated space send its store to the platform, and take another one in its place.
type storeServer struct {
	shard        runner
	awake        func() int64 // the revision of the store while the space is awake; 0 if it is not
	keeper       *snapshot.Keeper
	space        string
	dir, scratch string
	config       string // digest of what the process was told
	// mark is the file by whose presence the space is to run; it always is if there is none.
	mark string
	// identity is the digest of the keys that the space runs with, a string: others than those in its directory while a
	// restart with those has failed.
	identity atomic.Value

	mu sync.Mutex // one change at a time
}

// runner is the shard of the process, which runs the space.
type runner interface {
	Add(space string) error
	WarmUp(space string)
	Status(space string) (shard.Status, bool)
	StopSpace(ctx context.Context, space string) error
	Restart(ctx context.Context, space string) error
	Hold(space string) (release func())
}

// begunFile is in the data directory of a dedicated space's process whose store is its own, and says that the platform
// has let it run: until then, the platform has the store that counts.
const begunFile = "begun"

func newStoreServer(d *process.Dedicated, spaces *shard.Shard, dir, scratch string) (s *storeServer, err error) {
	s = &storeServer{shard: spaces, awake: func() int64 { return shardSpaces{spaces}.Revision(d.Space) }, space: d.Space, dir: dir, scratch: filepath.Join(scratch, "store")}
	if d.Remote() {
		s.mark = filepath.Join(d.DataDir, begunFile)
	}
	s.keeper, err = snapshot.NewKeeper(snapshot.Config{Dir: filepath.Dir(dir), Scratch: filepath.Join(scratch, "copies"), Spaces: shardSpaces{spaces}})
	if err == nil {
		err = s.readKeys()
	}
	if err == nil {
		err = os.RemoveAll(s.scratch)
	}
	if err == nil {
		err = os.MkdirAll(s.scratch, 0o700)
	}
	return s, err
}

// readKeys notes that the space will run with the keys in its directory.
func (s *storeServer) readKeys() error {
	files, err := readIdentity(s.dir)
	if err != nil {
		return err
	}
	s.identity.Store(dedicated.IdentityDigest(files))
	return nil
}

// begun reports whether the space is to run.
func (s *storeServer) begun() bool {
	if s.mark == "" {
		return true
	}
	_, err := os.Stat(s.mark)
	return err == nil
}

// resume runs the space, if it is to run.
func (s *storeServer) resume() error {
	if !s.begun() {
		return nil
	}
	if err := s.shard.Add(s.space); err != nil && !errors.Is(err, shard.ErrTaken) {
		return err
	}
	s.shard.WarmUp(s.space)
	return nil
}

// stop stops the space, and leaves its store in order.
func (s *storeServer) stop(ctx context.Context) error {
	if err := s.shard.StopSpace(ctx, s.space); err != nil {
		if _, has := s.shard.Status(s.space); has {
			return err
		}
	}
	path := filepath.Join(s.dir, "store.db")
	if _, err := os.Stat(path + "-wal"); err != nil {
		return nil
	}
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: s.space}) // which puts what is in the log where it belongs
	if err != nil {
		return fmt.Errorf("close the store of space %s: %w", s.space, err)
	}
	return store.Close()
}

func (s *storeServer) serve(mux *http.ServeMux) {
	mux.HandleFunc("GET "+dedicated.StorePath, s.send)
	mux.Handle("PUT "+dedicated.StorePath, control.Answer(s.receive))
	mux.Handle("PUT "+dedicated.IdentityPath, control.Answer(s.identify))
	mux.Handle("POST "+dedicated.BeginPath, control.Answer(func(*http.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mark != "" {
			if err := pki.WriteFile(s.mark, nil); err != nil {
				return nil, err
			}
		}
		return nil, s.resume()
	}))
	mux.Handle("POST "+dedicated.EndPath, control.Answer(func(r *http.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mark == "" {
			return nil, apierrors.NewBadRequest("the platform has the store")
		}
		if err := s.stop(context.WithoutCancel(r.Context())); err != nil {
			return nil, err
		}
		if err := os.Remove(s.mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, syncDir(filepath.Dir(s.mark))
	}))
	mux.Handle("GET "+dedicated.StatePath, control.Answer(func(*http.Request) (any, error) {
		identity, _ := s.identity.Load().(string)
		return dedicated.State{Begun: s.begun(), HasStore: snapshot.Exists(s.dir), Revision: s.revision(), Config: s.config, Identity: identity}, nil
	}))
}

// revision is a number that changes with the store: its revision while the space is awake, and else when the file was
// last written; 0 if that is not known.
func (s *storeServer) revision() int64 {
	if revision := s.awake(); revision > 0 {
		return revision
	}
	path := filepath.Join(s.dir, "store.db")
	info, err := os.Stat(path)
	if _, logged := os.Stat(path + "-wal"); err != nil || logged == nil {
		return 0
	}
	return info.ModTime().UnixNano()
}

// send answers with a copy of the store.
func (s *storeServer) send(w http.ResponseWriter, r *http.Request) {
	dir, err := os.MkdirTemp(s.scratch, "send-*")
	if err == nil {
		defer os.RemoveAll(dir)
		copied := filepath.Join(dir, "store.db")
		if err = s.keeper.Copy(r.Context(), s.space, copied); err == nil {
			err = sendFile(w, copied)
		}
	}
	if err != nil {
		control.Answer(func(*http.Request) (any, error) { return nil, err }).ServeHTTP(w, r)
	}
}

func sendFile(w http.ResponseWriter, path string) error {
	file, size, sum, err := dedicated.OpenSummed(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set(dedicated.ChecksumHeader, sum)
	_, _ = io.Copy(w, file) // who receives less finds out
	return nil
}

// receive puts a store in the place of the space's.
func (s *storeServer) receive(r *http.Request) (any, error) {
	restore, err := strconv.ParseBool(r.URL.Query().Get(dedicated.RestoreParam))
	if err != nil || r.ContentLength < 0 {
		return nil, apierrors.NewBadRequest("the request needs a Content-Length, and " + dedicated.RestoreParam + "=true or false")
	}
	dir, err := os.MkdirTemp(s.scratch, "receive-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	received := filepath.Join(dir, "received.db")
	if err := dedicated.Receive(r.Body, r.ContentLength, r.Header.Get(dedicated.ChecksumHeader), received); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun() && !restore {
		return nil, apierrors.NewBadRequest("the space already runs here with its own store")
	}
	defer s.shard.Hold(s.space)()
	ctx := context.WithoutCancel(r.Context()) // once it has begun it goes on, whether or not somebody waits
	err = s.stop(ctx)
	switch {
	case err != nil && !restore: // a restore replaces a store that is damaged, too
	case restore:
		err = snapshot.Restore(ctx, received, s.dir, dir)
	default:
		err = snapshot.Place(received, s.dir, dir)
	}
	return nil, errors.Join(err, s.resume())
}

// maxIdentity bounds what is read of the keys of a space.
const maxIdentity = 1 << 20

// identify has the space have the keys of the request, and no others.
func (s *storeServer) identify(r *http.Request) (any, error) {
	var files map[string][]byte
	if err := json.NewDecoder(io.LimitReader(r.Body, maxIdentity)).Decode(&files); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for path := range files {
		if !isIdentity(path) {
			return nil, apierrors.NewBadRequest(path + " is not a key of a space")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, data := range files {
		to := filepath.Join(s.dir, filepath.FromSlash(path))
		if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), pki.WriteFile(to, data)); err != nil {
			return nil, err
		}
	}
	have, err := readIdentity(s.dir)
	if err != nil {
		return nil, err
	}
	for path := range have {
		if _, wanted := files[path]; !wanted {
			if err := os.Remove(filepath.Join(s.dir, filepath.FromSlash(path))); err != nil {
				return nil, err
			}
		}
	}
	digest := dedicated.IdentityDigest(files)
	if s.identity.Load() == digest {
		return nil, nil
	}
	if _, has := s.shard.Status(s.space); has {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), startTimeout)
		defer cancel()
		if err := s.shard.Restart(ctx, s.space); err != nil {
			return nil, err // it is owed, as State says
		}
	}
	s.identity.Store(digest)
	return nil, nil
}

// identityFiles are what a space is known by, beside the keys in the directory pki.
func identityFiles() []string { return []string{"node.key", "store.id", podsAddressFile} }

// podsAddressFile is sent with the keys to a process on another machine: the IP at which the space's pods reach the
// platform.
const podsAddressFile = "pods.address"

func isIdentity(path string) bool {
	name, inPKI := strings.CutPrefix(path, "pki/")
	return inPKI && name != "" && filepath.IsLocal(name) && !strings.ContainsAny(name, `/\`) || slices.Contains(identityFiles(), path)
}

// readIdentity reads the keys in the directory of a space.
func readIdentity(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	paths := identityFiles()
	entries, err := os.ReadDir(filepath.Join(dir, "pki"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the keys of a space: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, "pki/"+e.Name())
		}
	}
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the keys of a space: %w", err)
		}
		files[path] = data
	}
	return files, nil
}

// syncDir has what was renamed and removed in a directory be on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
