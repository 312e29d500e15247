// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"sync"

	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	kineserver "github.com/k3s-io/kine/pkg/server"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/dbms"
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
	db        database
	committer *committer
	log       *eventLog
	hub       *hub.Hub
	expiry    *expiry
	backend   *backend

	ready bool // start has completed
	stop  context.CancelFunc
	runs  sync.WaitGroup
}

// startEngine serves the store in a database, which must be sound. ctx limits the start.
func startEngine(ctx context.Context, db database, o Options, log klog.Logger) (*engine, error) {
	quietKine()
	e := &engine{db: db, health: newHealth(db, log),
		budget: &storeBudget{max: o.MaxBytes, db: db, log: log, account: o.Account, volume: o.Volume}}
	if err := e.start(ctx, o); err != nil {
		return nil, errors.Join(sqlite.AsDamage(err), e.close())
	}
	return e, nil
}

func (e *engine) start(ctx context.Context, o Options) error {
	if err := e.db.Open(ctx); err != nil {
		return err
	}
	var last int64
	if err := e.db.Writer().QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM kine").Scan(&last); err != nil {
		return err
	}
	runCtx, stop := context.WithCancel(context.Background())
	e.stop = stop
	e.tidier = &tidier{ctx: runCtx, budget: e.budget, history: o.History}
	e.budget.pressed = e.tidier.wake
	counted, err := countObjects(ctx, e.db, o.Account)
	if err != nil {
		return err
	}
	e.committer = newCommitter(runCtx, e.db, e.health, e.budget, counted, e.written(o.Replica), last)

	d := &dialect{Generic: e.db.Readers(), committer: e.committer}
	idle := &idler{release: e.release}
	e.log = &eventLog{d: d, health: e.health, db: e.db, idle: idle, reading: make(chan struct{}, dbms.MaxReaders), maxList: listBytes, account: o.Account, run: runCtx,
		SQLLog: sqllog.New(d, 0, 0, 0, 0, 0, 0)} // without kine's background work
	e.tidier.log = e.log
	e.hub = hub.New(runCtx, last, e.log.changes, e.log.last)
	context.AfterFunc(e.health.bad, e.hub.Close)
	e.backend = &backend{LogStructured: logstructured.New(e.log), health: e.health, hub: e.hub, idle: idle}
	e.backend.closing, e.backend.end = context.WithCancel(context.Background())
	if server, is := e.db.(serverDatabase); is {
		e.backend.fence = &fence{check: server.CheckEpoch, health: e.health, ctx: e.backend.closing}
	}
	e.log.closing = e.backend.closing
	e.expiry = &expiry{clock: clock.RealClock{}, db: e.db, health: e.health,
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
	if _, _, err := e.budget.measureAll(ctx); err != nil {
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

// release closes the connections of an idle store.
func (e *engine) release() {
	if e.backend.enterQuietly() != nil {
		return
	}
	defer e.backend.calls.Done()
	if err := e.db.Release(); err != nil {
		_ = e.health.see(err)
	}
}

// close ends everything that start has started, even if start failed, from the clients down to the database.
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
	_, bad := e.health.check()
	err := e.db.Close(bad == nil)
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
