// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	kineserver "github.com/k3s-io/kine/pkg/server"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/hub"
	"github.com/berth-dev/berth/kine/sqlite"
)

// engine combines kine's parts: connections, the log of changes, the expiry of leases, and the backend.
//
// kine's own function for that (drivers/sqlite.New) isn't used. Its check for a legacy table keeps a connection at each
// open, so that the file is never closed cleanly (for the same reason, kine deadlocks with a pool of one connection).
// It ends the process when a commit fails, and nobody can wait for the goroutines that it starts.
type engine struct {
	health    *health
	budget    *storeBudget
	tidier    *tidier
	writer    *sql.DB // has one connection
	readers   *sqlite.Readers
	committer *committer
	log       *eventLog
	hub       *hub.Hub
	expiry    *expiry
	backend   *backend

	ready bool // start has completed
	stop  context.CancelFunc
	runs  sync.WaitGroup
}

// startEngine serves the store at path, which must exist and be sound. ctx limits the start.
func startEngine(ctx context.Context, path string, o Options, log klog.Logger) (*engine, error) {
	quietKine()
	e := &engine{health: newHealth(path, log), budget: &storeBudget{max: o.MaxBytes, path: path, log: log, account: o.Account, volume: o.Volume}}
	if err := e.start(ctx, path, o); err != nil {
		return nil, errors.Join(sqlite.AsDamage(err), e.close())
	}
	return e, nil
}

func (e *engine) start(ctx context.Context, path string, o Options) (err error) {
	e.writer = sqlite.OpenOne(path, sqlite.WriterParams)
	// This moves the write-ahead log of a killed process into the file, and creates indexes that another version of
	// kine did not.
	for _, stmt := range append(sqlite.Schema, "PRAGMA wal_checkpoint(TRUNCATE)") {
		if _, err := e.writer.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	if e.readers, err = sqlite.OpenReaders(ctx, path); err != nil {
		return err
	}
	var last int64
	if err := e.writer.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM kine").Scan(&last); err != nil {
		return err
	}
	runCtx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.tidier = &tidier{ctx: runCtx, budget: e.budget, history: o.History}
	e.budget.pressed = e.tidier.wake
	counted, err := countObjects(ctx, e.writer, o.Account)
	if err != nil {
		return err
	}
	e.committer = newCommitter(e.writer, e.budget, counted, e.tidier.written, last)

	d := &dialect{Generic: e.readers.Generic, committer: e.committer}
	idle := &idler{release: e.release}
	e.log = &eventLog{d: d, health: e.health, idle: idle, reading: make(chan struct{}, sqlite.MaxReaders), maxList: listBytes, account: o.Account, run: runCtx,
		SQLLog: sqllog.New(d, 0, 0, 0, 0, 0, 0)} // without kine's background work
	e.tidier.log = e.log
	e.hub = hub.New(runCtx, last, e.log.changes, e.log.last)
	context.AfterFunc(e.health.bad, e.hub.Close)
	e.backend = &backend{LogStructured: logstructured.New(e.log), health: e.health, hub: e.hub, idle: idle}
	e.backend.closing, e.backend.end = context.WithCancel(context.Background())
	e.expiry = &expiry{clock: clock.RealClock{}, db: e.readers.DB, health: e.health,
		enter: e.backend.enter, leave: e.backend.calls.Done,
		delete: func(ctx context.Context, key string, rev int64) error {
			_, _, _, err := e.backend.Delete(ctx, key, rev)
			return err
		}}
	e.backend.expiry = e.expiry
	defer context.AfterFunc(ctx, stop)()
	if err := e.run(runCtx); err != nil {
		return err
	}
	if _, _, err := e.budget.measure(ctx, e.writer); err != nil {
		return err
	}
	e.budget.volume.add(e.budget)
	e.ready = true
	return ctx.Err()
}

// run does what logstructured.Start does, in a way that callers can wait for.
func (e *engine) run(ctx context.Context) error {
	if err := e.log.Start(ctx); err != nil {
		return err
	}
	// The API server's health check reads this key.
	if _, err := e.backend.Create(ctx, kineserver.HealthKey, []byte(kineserver.HealthVal), 0); err != nil && !errors.Is(err, kineserver.ErrKeyExists) {
		return err
	}
	safego.Go(&e.runs, "hand on changes", func() { e.hub.Run(e.committer.wrote) }, nil)
	return e.expiry.start(ctx)
}

// release closes the connections and so frees SQLite's memory. When the last one is closed, the file has no write-ahead
// log.
func (e *engine) release() {
	if e.backend.enterQuietly() != nil {
		return
	}
	defer e.backend.calls.Done()
	// SQLite does this when it closes the last connection, but without reporting an error of the disk.
	if err := sqlite.Checkpoint(context.Background(), e.writer); err != nil {
		_ = e.health.see(err)
		return
	}
	sqlite.Release(e.readers.DB, sqlite.KeptReaders)
	sqlite.Release(e.writer, 1)
	sqlite.FreeOSMemory()
}

// close ends everything that start has started, even if start failed, from the clients down to the file.
func (e *engine) close() error {
	if e.backend != nil {
		e.backend.close()
	}
	if e.stop != nil {
		if e.ready {
			e.tidier.leave()
		}
		e.stop()
		e.tidier.stop()
	}
	e.runs.Wait()
	e.budget.volume.remove(e.budget)
	if e.committer != nil {
		e.committer.close()
	}
	var err error
	if e.readers != nil {
		err = e.readers.Close()
	}
	if e.writer != nil {
		if _, bad := e.health.check(); bad == nil {
			err = errors.Join(err, sqlite.Checkpoint(context.Background(), e.writer))
		}
		err = errors.Join(err, e.writer.Close())
	}
	e.health.cancel()
	return err
}

// quietKine keeps kine from writing to the process's standard error. It logs with logrus' global logger, and an error
// contains the whole request, which may be a tenant's secret. health logs what matters. If another level has been set,
// it is not changed.
func quietKine() {
	if logrus.GetLevel() == logrus.InfoLevel {
		logrus.SetLevel(logrus.FatalLevel)
	}
}
