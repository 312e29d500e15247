// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/mattn/go-sqlite3"
)

// pool is kine's statements over connections to one file.
type pool struct {
	*generic.Generic
	kept int // how many connections are kept while they idle
	stop context.CancelFunc
	done sync.WaitGroup
}

// openPool opens at most open connections, and keeps kept of them until they are released.
func openPool(ctx context.Context, path, params string, open, kept int) (*pool, error) {
	// kine tries a connection again for five minutes. One of ours shows an error at once.
	probe := openOne(path, params)
	defer probe.Close()
	if err := probe.PingContext(ctx); err != nil {
		return nil, err
	}
	poolCtx, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, stop)()
	p := &pool{stop: stop, kept: kept}
	var err error
	p.Generic, err = generic.OpenDB(poolCtx, &p.done, "sqlite3", connector{dsn(path, params)},
		generic.ConnectionPoolConfig{MaxOpen: open, MaxIdle: kept}, "?", false, nil)
	if err != nil {
		stop()
		p.done.Wait()
		return nil, err
	}
	p.LastInsertID = true
	useLists(p.Generic)
	p.ErrCode = errCode
	return p, nil
}

// checkpoint moves the write-ahead log into the file, and cuts it off if nobody reads. Asked for, it does so even if the
// last statement was interrupted; SQLite's own, at the end of the last connection, then doesn't.
func checkpoint(ctx context.Context, db *sql.DB) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// Writers wait for this: it must not wait for readers.
	_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout=0")
	if err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	_, restoreErr := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout=%d", busyTimeout.Milliseconds()))
	return errors.Join(err, restoreErr)
}

// release closes the connections that aren't in use. Others are opened when they are needed.
func (p *pool) release() {
	p.DB.SetMaxIdleConns(0)
	p.DB.SetMaxIdleConns(p.kept)
}

// close closes the connections, which must not be in use.
func (p *pool) close() error {
	err := p.DB.Close()
	p.stop()
	p.done.Wait()
	return err
}

// errCode labels an error in kine's metrics, which this package doesn't register.
func errCode(err error) string {
	var e sqlite3.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return fmt.Sprint(int(e.ExtendedCode))
	}
	return "other"
}
