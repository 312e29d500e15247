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
	"sync"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/sqlite"
)

// etcdVersion is what the API server sees when it looks for etcd's features.
const etcdVersion = "3.6.11"

// Options say which store to open.
type Options struct {
	// Path of the SQLite file. It is made if it is missing, with its parent directory (0700); the file is made 0600.
	// Beside it lie a lock, which stays, and while the store is open SQLite's write-ahead log.
	Path string
	// Name of the space, for logs.
	Name string
	// MaxBytes is how much the store may hold, with its indexes and what isn't compacted yet: beyond it, writes fail with
	// etcd's ErrNoSpace until something is deleted. 0 is DefaultMaxBytes. Disk space for twice as much may be needed for
	// a while, as deletions are written, too.
	MaxBytes int64
	// Account is of the space whose store it is. It counts objects, bytes stored, and what is read for nobody's request.
	Account *bounds.Account
	// Volume is the file system of the store. Default: the store grows until that is full.
	Volume *Volume
	// History is how long versions that were superseded are kept at least, for clients that watch or page through them.
	// The last 1000 are kept longer. A store that is nearly full keeps less. 0 is DefaultHistory.
	History time.Duration
}

// Store is an open store. Its methods may be called concurrently.
type Store struct {
	path   string
	lock   *os.File
	engine *engine
	client *kubernetes.Client
	dialer *dialer
	close  func() error
}

// Open opens the store of a space, or makes it. ctx bounds the opening only; the Store lives until Close.
// It fails with ErrNotStore, ErrDamaged or ErrInUse, wrapped with the path and what to do, or with an error of the
// system's; the file is then as it was. Logs go to ctx's klog logger.
func Open(ctx context.Context, o Options) (*Store, error) {
	if o.Path == "" || strings.ContainsRune(o.Path, 0) {
		return nil, fmt.Errorf("open store %q: a path is needed, without zero bytes", o.Path)
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	if o.MaxBytes < 0 {
		return nil, fmt.Errorf("open store %s: the limit must not be %d bytes; 0 means the default of %d bytes", path, o.MaxBytes, DefaultMaxBytes)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	s, err := open(ctx, path, o, klog.FromContext(ctx).WithValues("space", o.Name))
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
	if s.lock, err = sqlite.Take(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.lock.Close())
		}
	}()
	if err := examineOrCreate(ctx, path); err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	if s.engine, err = startEngine(ctx, path, o, log); err != nil {
		return nil, err
	}
	// The interval is that of kine's watches, which aren't used.
	b := &bridge{
		KVServerBridge: kineserver.New(s.engine.backend, "http", 0, etcdVersion),
		backend:        s.engine.backend,
		leases:         leases{clock.RealClock{}},
	}
	s.client = newClient(b, watcher{s.engine.backend})
	s.dialer = &dialer{bridge: b}
	s.close = sync.OnceValue(s.shutdown)
	return s, nil
}

// examineOrCreate leaves a sound store at path.
func examineOrCreate(ctx context.Context, path string) error {
	_, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return sqlite.Create(ctx, path)
	}
	if err != nil {
		return err
	}
	return sqlite.Examine(ctx, path)
}

// Client is the store's etcd client. All calls return the same one, which lives as long as the Store: don't close it.
func (s *Store) Client() *kubernetes.Client { return s.client }

// Close ends watches, waits for calls in flight, and leaves a file without a write-ahead log; its error wraps ErrDamaged if
// the file turned out to be so. Calls of the client that come later fail. Further calls of Close wait for the first and
// return its result.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutdown() error {
	_ = s.client.Close() // reports only that its context has ended
	s.dialer.close()
	err := errors.Join(sqlite.AsDamage(s.engine.close()), s.lock.Close())
	if err != nil {
		return fmt.Errorf("close store %s: %w", s.path, err)
	}
	return nil
}

// Lock keeps everybody from opening the store at path until what it returns is closed, for whoever moves the file. It
// fails with ErrInUse if somebody has it open, or keeps it so.
func Lock(path string) (io.Closer, error) {
	held, err := sqlite.Take(path)
	if err != nil {
		return nil, fmt.Errorf("lock store %s: %w", path, err)
	}
	return held, nil
}
