// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers"
	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/drivers/sqlite"
	kineserver "github.com/k3s-io/kine/pkg/server"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// kine applies its command line's defaults only there; embedded, they are given by hand.
const (
	notifyInterval = 5 * time.Second // between progress notifications on an idle watch
	etcdVersion    = "3.6.11"        // what the API server sees when it looks for etcd's features
	compactTimeout = 5 * time.Second // for each batch of a compaction
	compactRetain  = 1000            // revisions never compacted away
	compactBatch   = 1000            // revisions compacted in a transaction
	pollBatch      = 500             // revisions read at once for the watchers
)

// Options say which store to open.
type Options struct {
	// Path of the SQLite file. It is made if it is missing, with its parent directory (0700); the file is made 0600.
	Path string
	// Name of the space, for logs.
	Name string
}

// Store is an open store. Its methods may be called concurrently.
type Store struct {
	path   string
	lock   *os.File
	client *kubernetes.Client
	dialer *dialer
	cancel context.CancelFunc
	done   sync.WaitGroup
	close  func() error
}

// Open opens the store of a space, or makes it. ctx bounds the opening only; the Store lives until Close.
// Errors are ErrNotStore, ErrDamaged, ErrInUse, or the operating system's.
func Open(ctx context.Context, o Options) (*Store, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", o.Path, err)
	}
	s, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

func open(_ context.Context, path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l, err := lock(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{path: path, lock: l, cancel: cancel}
	_, backend, err := sqlite.New(ctx, &s.done, &drivers.Config{
		DataSourceName:       dsn(path, connParams),
		ConnectionPoolConfig: generic.ConnectionPoolConfig{MaxOpen: 5, MaxIdle: 5},
		CompactTimeout:       compactTimeout,
		CompactMinRetain:     compactRetain,
		CompactBatchSize:     compactBatch,
		PollBatchSize:        pollBatch,
	})
	if err == nil {
		err = backend.Start(ctx)
	}
	if err != nil {
		cancel()
		s.done.Wait()
		l.Close()
		return nil, err
	}
	bridge := kineserver.New(backend, "http", notifyInterval, etcdVersion)
	s.client = newClient(bridge)
	s.dialer = &dialer{bridge: bridge}
	s.close = sync.OnceValue(s.shutdown)
	return s, nil
}

// Client is the store's etcd client. It is shared and lives until the Store is closed: don't close it.
func (s *Store) Client() *kubernetes.Client { return s.client }

// Close ends watches, waits for calls in flight, and leaves a file without a write-ahead log. Further calls return the
// first one's result.
func (s *Store) Close() error { return s.close() }

func (s *Store) shutdown() error {
	_ = s.client.Close() // reports only that its context has ended
	s.dialer.close()
	s.cancel()
	s.done.Wait()
	return s.lock.Close()
}
