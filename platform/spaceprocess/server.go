// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/snapshot"
)

// ServerFile is a file that the platform writes for the process of a space with a store in a database server. It has the credentials of this
// space alone, and is the result of [EncodeServer]. The process reads it at each start of the space, so the platform may replace it.
const ServerFile = "store.json"

// serverAccess is what [ServerFile] contains.
type serverAccess struct {
	Type kine.ServerType `json:"type"`
	DSN  string          `json:"dsn"`
	CA   []byte          `json:"ca,omitempty"`
	Cert []byte          `json:"cert,omitempty"`
	Key  []byte          `json:"key,omitempty"`
}

// EncodeServer returns the contents of [ServerFile].
func EncodeServer(server *kine.Server) ([]byte, error) {
	data, err := json.Marshal(serverAccess{Type: server.Type, DSN: server.DSN, CA: server.CA, Cert: server.Cert, Key: server.Key})
	if err != nil {
		return nil, fmt.Errorf("encode how to connect to the database server: %w", err)
	}
	return data, nil
}

// serverStore says which database server has the store of the space, and whether this process may open it. A process with a directory of its
// own opens a store that another process has opened since only if the platform allows that: a pod of a node that was cut off must not take the
// store from the pod that has replaced it.
type serverStore struct {
	space, file, dir string
	// asks says that the process has a directory of its own.
	asks bool
	// allowed says that the platform allows to open the store whatever its epoch is, and waits that the space needs that.
	allowed, waits atomic.Bool
}

// newServerStore returns nil if the store of the space is a file. dir has the files that the platform wrote.
func newServerStore(d *process.Dedicated, dir string) *serverStore {
	if store := d.Specs.Of(d.Space).Store; !store.InServer() {
		return nil
	}
	return &serverStore{space: d.Space, file: filepath.Join(dir, ServerFile), dir: datadir.Space(d.DataDir, d.Space), asks: d.Remote()}
}

// read returns the database server, as the platform last wrote it.
func (s *serverStore) read() (*kine.Server, error) {
	data, err := os.ReadFile(s.file)
	if err != nil {
		return nil, fmt.Errorf("%w: read what the platform wrote for this space: %w", kine.ErrServer, err)
	}
	var access serverAccess
	if json.Unmarshal(data, &access) != nil { // its error may quote the contents
		return nil, fmt.Errorf("%w: the file %s is damaged", kine.ErrServer, ServerFile)
	}
	id, err := datadir.StoreIDIn(s.dir)
	if err != nil {
		return nil, err
	}
	return &kine.Server{Type: access.Type, DSN: access.DSN, CA: access.CA, Cert: access.Cert, Key: access.Key, ID: id}, nil
}

// toOpen returns the database server for a start of the space.
func (s *serverStore) toOpen(ctx context.Context) (*kine.Server, error) {
	server, err := s.read()
	if err != nil || !s.asks {
		return server, err
	}
	files, epoch, err := kine.ReadFiles(ctx, s.space, *server)
	if err != nil {
		return nil, err
	}
	own, err := spacefiles.Epoch(s.dir)
	switch {
	case err != nil:
		return nil, err
	case s.allowed.Load(): // the keys here are newer than those in the database, as the platform has just sent them
		err = spacefiles.WriteEpoch(s.dir, max(epoch, files.Epoch))
	case own != epoch:
		s.waits.Store(true)
		err = fmt.Errorf("another process has opened the store of the space since: its epoch is %d, and was %d; the space starts when Berth allows it", epoch, own)
	}
	if err != nil {
		return nil, err
	}
	server.Expected = &epoch
	return server, nil
}

// allow allows the space to open the store once, whatever its epoch is.
func (s *serverStore) allow() {
	s.allowed.Store(true)
	s.waits.Store(false)
}

// woken is called after a start of the space. From now on, the directory has the epoch of the store. It does nothing on nil.
func (s *serverStore) woken(_ string, _ time.Duration, err error) {
	if s != nil && err == nil {
		s.allowed.Store(false)
		s.waits.Store(false)
	}
}

// serverSnapshots are the copies of a space with a store in a database server. What such a space has while it sleeps is only there, also
// before it has first run in this process.
type serverSnapshots struct {
	snapshot.Spaces
	store *serverStore
}

// Snapshot implements [snapshot.Spaces].
func (s serverSnapshots) Snapshot(ctx context.Context, name, path string) (elsewhere bool, err error) {
	elsewhere, err = s.Spaces.Snapshot(ctx, name, path)
	if !errors.Is(err, snapshot.ErrAsleep) {
		return elsewhere, err
	}
	if _, err := os.Stat(filepath.Join(s.store.dir, "store.db")); err == nil { // a snapshot that was restored, and not loaded yet
		return false, snapshot.ErrAsleep
	}
	server, err := s.store.read()
	if err != nil {
		return false, err
	}
	return false, kine.CopyServer(ctx, name, *server, path)
}
