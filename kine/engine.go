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

// engine is kine's parts, put together: connections, the log of changes, expiry of leases, and the backend over them.
//
// kine's own assembly (drivers/sqlite.New) isn't used: its look for a table of long ago keeps a connection for good on
// each open (this is why kine deadlocks on a pool of one), so that the file is never left clean; it ends the process when
// a commit fails; and what it starts can't be waited for.
type engine struct {
	health    *health
	budget    *storeBudget
	tidier    *tidier
	writer    *sql.DB // of one connection
	readers   *sqlite.Readers
	committer *committer
	log       *eventLog
	hub       *hub.Hub
	expiry    *expiry
	backend   *backend

	ready bool // it has been started wholly
	stop  context.CancelFunc
	runs  sync.WaitGroup
}

// startEngine serves the store at path, which is there and was examined. ctx bounds the start.
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
	// The log of a killed process goes into the file, and indexes that another kine left out are made.
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
		SQLLog: sqllog.New(d, 0, 0, 0, 0, 0, 0)} // without what kine does in the background
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

// run starts what logstructured.Start would, but so that it can be waited for.
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

// release lets go of the connections, and with them of SQLite's memory. The last one leaves a file without a log.
func (e *engine) release() {
	if e.backend.enterQuietly() != nil {
		return
	}
	defer e.backend.calls.Done()
	// Here, as SQLite would do it while it closes the last connection, but say nothing if the disk fails it.
	if err := sqlite.Checkpoint(context.Background(), e.writer); err != nil {
		_ = e.health.see(err)
		return
	}
	sqlite.Release(e.readers.DB, sqlite.KeptReaders)
	sqlite.Release(e.writer, 1)
	sqlite.FreeOSMemory()
}

// close ends what start has started, however far it came, from the clients down to the file.
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

// quietKine keeps kine from writing to the process's standard error. It logs through logrus' global logger, and with an
// error the whole request, which may be a tenant's secret; what matters is logged by health. The level is left alone if
// somebody has set one.
func quietKine() {
	if logrus.GetLevel() == logrus.InfoLevel {
		logrus.SetLevel(logrus.FatalLevel)
	}
}
