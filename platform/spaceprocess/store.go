// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

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
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/snapshot/feed"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/pki"
)

// Store serves the store of a dedicated space to the platform: it sends copies, and accepts replacements.
type Store struct {
	StoreConfig
	config string // digest of the files that the process reads only once
	keeper *snapshot.Keeper
	// identity is the digest, a string, of the keys that the space uses. After a failed restart, these are not the keys
	// in its directory.
	identity atomic.Value

	mu sync.Mutex // one change at a time
}

// StoreConfig configures a [Store].
type StoreConfig struct {
	Space        string
	Dir, Scratch string // directories of the space, and for incomplete files
	Shard        Runner
	Spaces       snapshot.Spaces
	Awake        func() int64 // returns the revision of the store while the space is awake; 0 otherwise
	// IsOpen reports whether an opening of the store, a [feed.State.Opening], is the current one.
	IsOpen func(opening uint64) bool
	// Mark is a file. The space runs only if it exists. If Mark is empty, the space always runs.
	Mark string
	// Allow, if set, lets the space open a store in a database server that another process has opened since, and Waits reports whether the
	// space needs that.
	Allow func()
	Waits func() bool
}

// Runner is the shard of the process, which runs the space.
type Runner interface {
	Add(space string) error
	WarmUp(space string)
	Status(space string) (shard.Status, bool)
	StopSpace(ctx context.Context, space string) error
	Restart(ctx context.Context, space string) error
	Hold(space string) (release func())
}

// BegunFile is a file in the data directory of a dedicated space's process that has its own store. It means that the
// platform has let the process run the space. Until then, the platform has the current store.
const BegunFile = "begun"

func newStore(d *process.Dedicated, spaces *shard.Shard, server *serverStore, rows *feed.Feed, scratch string) (*Store, error) {
	dir := datadir.Space(d.DataDir, d.Space)
	c := StoreConfig{Space: d.Space, Dir: dir, Scratch: scratch, Shard: spaces, Spaces: Snapshots{Shard: spaces}, Awake: func() int64 { return Snapshots{Shard: spaces}.Revision(d.Space) }}
	c.IsOpen = rows.IsOpen
	if d.Remote() {
		c.Mark = filepath.Join(d.DataDir, BegunFile)
	}
	if server != nil {
		c.Spaces, c.Allow, c.Waits = serverSnapshots{c.Spaces, server}, server.allow, server.waits.Load
	}
	return NewStore(c)
}

// NewStore returns the store of a space. It removes the contents of the scratch directory.
func NewStore(c StoreConfig) (s *Store, err error) {
	copies := filepath.Join(c.Scratch, "copies")
	c.Scratch = filepath.Join(c.Scratch, "store")
	s = &Store{StoreConfig: c}
	s.keeper, err = snapshot.NewKeeper(snapshot.Config{Dir: filepath.Dir(c.Dir), Scratch: copies, Spaces: c.Spaces})
	if err == nil {
		err = s.readKeys()
	}
	if err == nil {
		err = os.RemoveAll(c.Scratch)
	}
	if err == nil {
		err = os.MkdirAll(c.Scratch, 0o700)
	}
	return s, err
}

// readKeys records the keys in the space's directory as those that it uses.
func (s *Store) readKeys() error {
	files, err := ReadIdentity(s.Dir)
	if err != nil {
		return err
	}
	s.identity.Store(dedicated.IdentityDigest(files))
	return nil
}

// begun reports whether the space must run.
func (s *Store) begun() bool {
	if s.Mark == "" {
		return true
	}
	_, err := os.Stat(s.Mark)
	return err == nil
}

// waits reports whether the space needs [StoreConfig.Allow].
func (s *Store) waits() bool { return s.Waits != nil && s.Waits() }

// begin runs the space from now on.
func (s *Store) begin() error {
	if s.Allow != nil && (!s.begun() || s.waits()) {
		s.Allow()
	}
	if s.Mark != "" {
		if err := pki.WriteFile(s.Mark, nil); err != nil {
			return err
		}
	}
	return s.resume()
}

// resume runs the space, if it must run.
func (s *Store) resume() error {
	if !s.begun() {
		return nil
	}
	if err := s.Shard.Add(s.Space); err != nil && !errors.Is(err, shard.ErrTaken) {
		return err
	}
	s.Shard.WarmUp(s.Space)
	return nil
}

// stop stops the space, and closes its store cleanly.
func (s *Store) stop(ctx context.Context) error {
	if err := s.Shard.StopSpace(ctx, s.Space); err != nil {
		if _, has := s.Shard.Status(s.Space); has {
			return err
		}
	}
	path := filepath.Join(s.Dir, "store.db")
	if _, err := os.Stat(path + "-wal"); err != nil {
		return nil
	}
	store, err := kine.Open(ctx, kine.Options{Path: path, Name: s.Space}) // moves the write-ahead log into the file
	if err != nil {
		return fmt.Errorf("close the store of space %s: %w", s.Space, err)
	}
	return store.Close()
}

// Serve adds the routes for the store and the keys.
func (s *Store) Serve(mux *http.ServeMux) {
	mux.HandleFunc("GET "+dedicated.StorePath, s.send)
	mux.Handle("PUT "+dedicated.StorePath, control.Answer(s.receive))
	mux.Handle("PUT "+dedicated.IdentityPath, control.Answer(s.identify))
	mux.Handle("POST "+dedicated.BeginPath, control.Answer(func(*http.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.begin()
	}))
	mux.Handle("POST "+dedicated.EndPath, control.Answer(func(r *http.Request) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.Mark == "" {
			return nil, apierrors.NewBadRequest("the platform has the store")
		}
		if err := s.stop(context.WithoutCancel(r.Context())); err != nil {
			return nil, err
		}
		if err := os.Remove(s.Mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return nil, fsutil.SyncDir(filepath.Dir(s.Mark))
	}))
	mux.Handle("GET "+dedicated.StatePath, control.Answer(func(*http.Request) (any, error) {
		identity, _ := s.identity.Load().(string)
		return dedicated.State{Begun: s.begun(), HasStore: snapshot.Exists(s.Dir), Revision: s.revision(), Config: s.config, Identity: identity, Waits: s.waits()}, nil
	}))
}

// revision returns a number that changes with the store: its revision while the space is awake, otherwise the time of
// the last write to the file, or of the last use of a store in a database server; 0 if it is unknown.
func (s *Store) revision() int64 {
	if revision := s.Awake(); revision > 0 {
		return revision
	}
	path := filepath.Join(s.Dir, "store.db")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = os.Stat(storemark.Path(s.Dir))
	}
	if _, logged := os.Stat(path + "-wal"); err != nil || logged == nil {
		return 0
	}
	return info.ModTime().UnixNano()
}

// send responds with a copy of the store, of an opening if the request names one.
func (s *Store) send(w http.ResponseWriter, r *http.Request) {
	dir, err := os.MkdirTemp(s.Scratch, "send-*")
	if err == nil {
		defer os.RemoveAll(dir)
		copied := filepath.Join(dir, "store.db")
		if err = s.keeper.Copy(r.Context(), s.Space, copied); err == nil {
			err = s.checkOpening(r.URL.Query().Get(dedicated.OpeningParam)) // no opening has the number of an earlier one
		}
		if err == nil {
			err = sendFile(r.Context(), w, copied)
		}
	}
	if err != nil {
		control.Answer(func(*http.Request) (any, error) { return nil, err }).ServeHTTP(w, r)
	}
}

// checkOpening fails if the opening with a number isn't the current one.
func (s *Store) checkOpening(number string) error {
	if number == "" {
		return nil
	}
	opening, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if s.IsOpen == nil || !s.IsOpen(opening) {
		return apierrors.NewServiceUnavailable("the store has been closed")
	}
	return nil
}

func sendFile(ctx context.Context, w http.ResponseWriter, path string) error {
	if copied, err := snapshot.OpenCopied(ctx, path); err == nil { // only replicas need that
		w.Header().Set(dedicated.RevisionHeader, strconv.FormatInt(copied.Revision, 10))
		w.Header().Set(dedicated.RowHeader, copied.Row)
	}
	file, size, sum, err := dedicated.OpenSummed(path)
	if err != nil {
		return err
	}
	defer file.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set(dedicated.ChecksumHeader, sum)
	_, _ = io.Copy(w, file) // the receiver detects an incomplete copy
	return nil
}

// receive replaces the space's store.
func (s *Store) receive(r *http.Request) (any, error) {
	restore, err := strconv.ParseBool(r.URL.Query().Get(dedicated.RestoreParam))
	if err != nil || r.ContentLength < 0 {
		return nil, apierrors.NewBadRequest("the request needs a Content-Length, and " + dedicated.RestoreParam + "=true or false")
	}
	dir, err := os.MkdirTemp(s.Scratch, "receive-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	received := filepath.Join(dir, "received.db")
	if err := receiveFiles(r, received, filepath.Join(dir, "rows")); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun() && !restore {
		return nil, apierrors.NewBadRequest("the space already runs here with its own store")
	}
	defer s.Shard.Hold(s.Space)()
	ctx := context.WithoutCancel(r.Context()) // from here on, it continues even if the caller no longer waits
	err = s.stop(ctx)
	switch {
	case err != nil && !restore: // a restore also replaces a damaged store
	case restore:
		err = snapshot.Restore(ctx, received, s.Dir, dir)
	default:
		err = snapshot.Place(received, s.Dir, dir)
	}
	return nil, errors.Join(err, s.resume())
}

// receiveFiles writes the store in a request to a file, which has the rows in the request, too. rows is where these are written before.
func receiveFiles(r *http.Request, store, rows string) error {
	size, text := int64(0), r.URL.Query().Get(dedicated.RowsParam)
	if text != "" {
		var err error
		if size, err = strconv.ParseInt(text, 10, 64); err != nil || size < 0 || size > r.ContentLength {
			return apierrors.NewBadRequest(dedicated.RowsParam + " must be a number of bytes of the request")
		}
	}
	err := dedicated.Receive(r.Body, r.ContentLength-size, r.Header.Get(dedicated.ChecksumHeader), store)
	if err != nil || text == "" {
		return err
	}
	if err := dedicated.Receive(r.Body, size, r.Header.Get(dedicated.RowsChecksumHeader), rows); err != nil {
		return err
	}
	return snapshot.Append(r.Context(), store, rows)
}

// maxIdentity limits the size of a space's keys in a request.
const maxIdentity = 1 << 20

// restartTimeout limits the restart of the space with other keys.
const restartTimeout = 2 * time.Minute

// identify replaces the space's keys by those in the request.
func (s *Store) identify(r *http.Request) (any, error) {
	var files map[string][]byte
	if err := json.NewDecoder(io.LimitReader(r.Body, maxIdentity)).Decode(&files); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for path := range files {
		if !isIdentity(path) {
			return nil, apierrors.NewBadRequest(path + " is not a key of a space")
		}
	}
	delete(files, "pki/"+credentials.ServingCAFile) // an earlier version of the platform sends one, which may be old
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, data := range files {
		to := filepath.Join(s.Dir, filepath.FromSlash(path))
		if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), pki.WriteFile(to, data)); err != nil {
			return nil, err
		}
	}
	have, err := ReadIdentity(s.Dir)
	if err != nil {
		return nil, err
	}
	for path := range have {
		if _, wanted := files[path]; !wanted {
			if err := os.Remove(filepath.Join(s.Dir, filepath.FromSlash(path))); err != nil {
				return nil, err
			}
		}
	}
	digest := dedicated.IdentityDigest(files)
	if s.identity.Load() == digest {
		return nil, nil
	}
	if _, has := s.Shard.Status(s.Space); has {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restartTimeout)
		defer cancel()
		if err := s.Shard.Restart(ctx, s.Space); err != nil {
			return nil, err // the restart is retried; State reports it
		}
	}
	s.identity.Store(digest)
	return nil, nil
}
