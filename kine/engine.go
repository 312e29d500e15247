// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/k3s-io/kine/pkg/logstructured"
	"github.com/k3s-io/kine/pkg/logstructured/sqllog"
	kineserver "github.com/k3s-io/kine/pkg/server"
	"github.com/k3s-io/kine/pkg/ttl"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// kine applies its command line's defaults only there; embedded, they are given by hand.
const (
	compactInterval = 0               // kine's own compactor stays off, and the API server's requests are obeyed: else they are ignored
	compactTimeout  = 5 * time.Second // for each batch of a compaction
	compactRetain   = 1000            // revisions never compacted away
	compactBatch    = 1000            // revisions compacted in a transaction
)

// readers is how many reads run at once. A used connection holds about 0.5 MiB; idle ones are closed.
var readers = generic.ConnectionPoolConfig{MaxOpen: 4, MaxIdle: 2, MaxIdleTime: time.Minute}

// engine is kine's parts, put together: connections, the log of changes, expiry of leases, and the backend over them.
//
// kine's own assembly (drivers/sqlite.New) isn't used: its look for a table of long ago keeps a connection for good on
// each open (this is why kine deadlocks on a pool of one), so that the file is never left clean; it ends the process when
// a commit fails; and what it starts can't be waited for.
type engine struct {
	health    *health
	writer    *pool
	readers   *pool
	committer *committer
	log       *eventLog
	hub       *hub
	backend   *backend

	stop context.CancelFunc
	runs sync.WaitGroup
}

// startEngine serves the store at path, which is there and was examined. ctx bounds the start.
func startEngine(ctx context.Context, path string, log klog.Logger) (*engine, error) {
	quietKine()
	e := &engine{health: newHealth(path, log)}
	if err := e.start(ctx, path); err != nil {
		return nil, errors.Join(asDamage(err), e.close())
	}
	return e, nil
}

func (e *engine) start(ctx context.Context, path string) (err error) {
	if e.writer, err = openPool(ctx, path, writerParams, generic.ConnectionPoolConfig{MaxOpen: 1, MaxIdle: 1}); err != nil {
		return err
	}
	// The log of a killed process goes into the file, and indexes that another kine left out are made.
	for _, stmt := range append(schema, "PRAGMA wal_checkpoint(TRUNCATE)") {
		if _, err := e.writer.DB.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	if e.readers, err = openPool(ctx, path, readerParams, readers); err != nil {
		return err
	}
	var last int64
	if err := e.writer.DB.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM kine").Scan(&last); err != nil {
		return err
	}
	e.committer = newCommitter(e.writer.DB, e.writer.InsertLastInsertIDSQL.Query, last)

	d := &dialect{Generic: e.readers.Generic, writer: e.writer.Generic, committer: e.committer}
	e.log = &eventLog{d: d, health: e.health,
		SQLLog: sqllog.New(d, compactInterval, 0, compactTimeout, compactRetain, compactBatch, feedBatch)}
	e.hub = newHub(last)
	e.hub.read, e.hub.last = e.log.After, e.committer.last.Load
	context.AfterFunc(e.health.bad, e.hub.close)
	e.backend = &backend{LogStructured: logstructured.New(e.log), health: e.health, log: e.log, hub: e.hub}
	return e.run(ctx)
}

// run starts what logstructured.Start would, but so that it can be waited for.
func (e *engine) run(ctx context.Context) error {
	runCtx, stop := context.WithCancel(context.Background())
	e.stop = stop
	defer context.AfterFunc(ctx, stop)()
	if err := e.log.Start(runCtx); err != nil {
		return err
	}
	// The API server's health check reads this key.
	if _, err := e.backend.Create(ctx, kineserver.HealthKey, []byte(kineserver.HealthVal), 0); err != nil && !errors.Is(err, kineserver.ErrKeyExists) {
		return err
	}
	e.runs.Go(func() { e.hub.run(runCtx, e.committer.wrote) })
	e.runs.Go(func() { ttl.Run(runCtx, e.backend) })
	return ctx.Err()
}

// close ends what start has started, however far it came, from the clients down to the file.
func (e *engine) close() error {
	if e.backend != nil {
		e.backend.close()
	}
	if e.stop != nil {
		e.stop()
	}
	e.runs.Wait()
	if e.committer != nil {
		e.committer.close()
	}
	var err error
	if e.readers != nil {
		err = e.readers.close()
	}
	if e.writer != nil {
		if _, bad := e.health.check(); bad == nil {
			err = errors.Join(err, e.writer.checkpoint())
		}
		err = errors.Join(err, e.writer.close())
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
