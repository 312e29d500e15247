// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// etcdVersion is the version that the API server sees when it checks which features etcd has.
const etcdVersion = "3.6.11"

// These are the errors of Open about a file. The errors that it returns wrap one of them, with the path and the remedy.
var (
	// ErrNotStore means that the file is not the store of a space.
	ErrNotStore = sqlite.ErrNotStore
	// ErrDamaged means that the file is a store, but parts of it are damaged.
	ErrDamaged = sqlite.ErrDamaged
	// ErrInUse means that another process, or another Store of this process, has opened the file.
	ErrInUse = sqlite.ErrInUse
	// ErrOtherSpace means that the database in a server belongs to another space.
	ErrOtherSpace = dbms.ErrOtherSpace
	// ErrTakenOver means that another process has opened the store in a server.
	ErrTakenOver = dbms.ErrFenced
	// ErrServer means that the database of a store in a server can't be used, because of the server, the DSN, or what is in the
	// database.
	ErrServer = errors.New("the database of the store can't be used")
)

// Options describe the store to open.
type Options struct {
	// Server is the database of a store that is not a file. If it is nil, Path is needed.
	Server *Server
	// Path is the path of the SQLite file, or that of the cache of a store in a server that has one (see [ServerType.Cached]). If it is missing, it is created with mode 0600, and its directory with 0700.
	// Beside it are a lock file, which stays, and SQLite's write-ahead log while the store is open.
	Path string
	// Name is the name of the space, for logs.
	Name string
	// MaxBytes is the size limit of the store, including indexes and versions that are not compacted yet. Beyond it,
	// writes fail with etcd's ErrNoSpace until objects are deleted. Zero means DefaultMaxBytes. The disk temporarily
	// needs up to twice as much, because deletions are written, too.
	MaxBytes int64
	// Account is the account of the space. It counts objects, stored bytes, and what is read outside of requests.
	Account *bounds.Account
	// Volume is the file system of the store. If it is nil, the store may grow until the file system is full.
	Volume *Volume
	// Replica, if set, follows what is written to a store that is a file.
	Replica Replica
	// History is how long replaced versions are kept for clients that watch or page through them. The last 1000 are
	// kept longer, and a store that is nearly full keeps fewer. Zero means DefaultHistory.
	History time.Duration
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	path   string    // or the name of the database, for errors
	lock   io.Closer // nil for a store in a server
	engine *engine
	client *kubernetes.Client
	dialer *dialer
	close  func() error

	replica Replica // nil if there is none
}

// Open opens the store of a space, or creates it. ctx limits only the opening; the Store is open until Close. Open
// fails with ErrNotStore, ErrDamaged, or ErrInUse, wrapped with the path and the remedy, or with an error of the
// system. In these cases, the file is not changed. The store logs to the klog logger of ctx.
//
// A store in a server is taken over from the process that has it open, which can't write to it any more. Open fails with
// ErrOtherSpace if the database is that of another space, and with ErrNotStore if it is that of another program.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.MaxBytes < 0 {
		return nil, fmt.Errorf("open store %s: the limit must not be %d bytes; 0 means the default of %d bytes", o.Path, o.MaxBytes, DefaultMaxBytes)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	log := klog.FromContext(ctx).WithValues("space", o.Name)
	if o.Server != nil {
		return openServer(ctx, o, log)
	}
	if o.Path == "" || strings.ContainsRune(o.Path, 0) {
		return nil, fmt.Errorf("open store %q: a path is needed, without zero bytes", o.Path)
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	s, err := open(ctx, path, o, log)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string, o Options, log klog.Logger) (_ *Store, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	s := &Store{path: path}
	lock, err := sqlite.Take(path)
	if err != nil {
		return nil, err
	}
	s.lock = lock
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	if err := examineOrCreate(ctx, path, o.Volume); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	if err := s.serve(ctx, sqlite.NewDatabase(path), o, log); err != nil {
		return nil, err
	}
	if s.replica = o.Replica; s.replica != nil {
		s.replica.Opened(s)
	}
	return s, nil
}

// examineOrCreate checks the store at path, or creates it.
func examineOrCreate(ctx context.Context, path string, volume *Volume) error {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return sqlite.Create(ctx, path)
	}
	if err != nil {
		return err
	}
	if volume == nil {
		return sqlite.Examine(ctx, path)
	}
	return volume.examined.Examine(ctx, path)
}

// Client returns the store's etcd client. All calls return the same one, which the Store closes: don't close it.
func (s *Store) Client() *kubernetes.Client { return s.client }

// Name returns the path of the store, or names its database, without a password.
func (s *Store) Name() string { return s.path }

// Close ends watches, waits for current calls, and leaves a file without a write-ahead log. The error wraps ErrDamaged
// if the file has been found damaged. Later calls of the client fail. Further calls of Close wait for the first one,
// and return its result.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutdown() error {
	if s.replica != nil {
		s.replica.Closing()
	}
	_ = s.client.Close() // returns only that its context has ended
	s.dialer.close()
	err := sqlite.AsDamage(s.engine.close())
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("close store %s: %w", s.path, err)
	}
	return nil
}

// Lock prevents that anybody opens the store at path, until the returned Closer is closed. It is for moving the file.
// It fails with ErrInUse if the store is open or locked.
func Lock(path string) (io.Closer, error) {
	held, err := sqlite.Take(path)
	if err != nil {
		return nil, fmt.Errorf("lock store %s: %w", path, err)
	}
	return held, nil
}
