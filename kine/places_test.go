// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/internal/testservers"
	"github.com/berth-dev/berth/kine"
)

// place is where a store is. Stores of all types give the same guarantees (D4), so most tests run in a place of each type.
type place struct {
	path   string              // of a file, or of the cache
	server *kine.Server        // in place of a file
	runs   *testservers.Server // the server, if there is one
}

// onEach runs a test in a new place of each type, in real servers.
func onEach(t *testing.T, test func(*testing.T, place)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(t, file(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, inServer(t, kine.PostgreSQL)) })
	t.Run("MariaDB", func(t *testing.T) { test(t, inServer(t, kine.MySQL)) })
	t.Run("Etcd", func(t *testing.T) { test(t, inServer(t, kine.Etcd)) })
	t.Run("NATS", func(t *testing.T) { test(t, inServer(t, kine.NATS)) })
	t.Run("S3", func(t *testing.T) { test(t, inServer(t, kine.S3)) })
}

// onServers runs a test in a new place of each type of server.
func onServers(t *testing.T, test func(*testing.T, place)) {
	t.Helper()
	t.Run("PostgreSQL", func(t *testing.T) { test(t, inServer(t, kine.PostgreSQL)) })
	t.Run("MariaDB", func(t *testing.T) { test(t, inServer(t, kine.MySQL)) })
	t.Run("Etcd", func(t *testing.T) { test(t, inServer(t, kine.Etcd)) })
	t.Run("NATS", func(t *testing.T) { test(t, inServer(t, kine.NATS)) })
	t.Run("S3", func(t *testing.T) { test(t, inServer(t, kine.S3)) })
}

func file(t testing.TB) place {
	t.Helper()
	return place{path: filepath.Join(t.TempDir(), "space", "state.db")}
}

func inServer(t testing.TB, kind kine.ServerType) place {
	t.Helper()
	start := map[kine.ServerType]func(testing.TB) *testservers.Server{
		kine.PostgreSQL: testservers.PostgreSQL, kine.MySQL: testservers.MariaDB, kine.Etcd: testservers.Etcd,
		kine.NATS: testservers.NATS, kine.S3: testservers.S3,
	}[kind]
	server := start(t)
	p := place{server: &kine.Server{Type: kind, DSN: server.Database(t), ID: "1"}, runs: server}
	return p.elsewhere(t)
}

// elsewhere is the same place for another process, which has a cache of its own.
func (p place) elsewhere(t testing.TB) place {
	t.Helper()
	if p.server != nil && p.server.Type.Cached() {
		p.path = filepath.Join(t.TempDir(), "space", "cache.db")
	}
	return p
}

// another returns a new place of the same type.
func (p place) another(t testing.TB) place {
	t.Helper()
	if p.server == nil {
		return file(t)
	}
	return inServer(t, p.server.Type)
}

func (p place) options(o kine.Options) kine.Options {
	o.Path, o.Server, o.Name = p.path, p.server, "demo"
	return o
}

// open opens the store of a place, which the test's end closes.
func (p place) open(t testing.TB) *kine.Store {
	t.Helper()
	return p.openWith(t, kine.Options{})
}

func (p place) openWith(t testing.TB, o kine.Options) *kine.Store {
	t.Helper()
	s, err := kine.Open(t.Context(), p.options(o))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// restore makes the place's store from a snapshot.
func (p place) restore(t testing.TB, snapshot string) {
	t.Helper()
	var err error
	if p.server != nil {
		_, err = kine.RestoreServer(t.Context(), snapshot, "demo", *p.server)
	} else {
		err = kine.Restore(t.Context(), snapshot, p.path)
	}
	if err != nil {
		t.Fatal(err)
	}
}
