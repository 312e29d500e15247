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

// maxReaders is how many reads run at once, keptReaders how many connections are kept for the next ones until the store
// is idle. A used connection holds about 0.5 MiB.
const (
	maxReaders  = 4
	keptReaders = 2
)

// readers is kine's statements over connections that can't write.
type readers struct {
	*generic.Generic
	stop context.CancelFunc
	done sync.WaitGroup
}

func openReaders(ctx context.Context, path string) (*readers, error) {
	// kine tries a connection again for five minutes. One of ours shows an error at once.
	probe := openOne(path, readerParams)
	defer probe.Close()
	if err := probe.PingContext(ctx); err != nil {
		return nil, err
	}
	poolCtx, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, stop)()
	p := &readers{stop: stop}
	var err error
	p.Generic, err = generic.OpenDB(poolCtx, &p.done, "sqlite3", connector{dsn(path, readerParams)},
		generic.ConnectionPoolConfig{MaxOpen: maxReaders, MaxIdle: keptReaders}, "?", false, nil)
	if err != nil {
		stop()
		p.done.Wait()
		return nil, err
	}
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

// release closes the connections that aren't in use, of which kept would be kept. Others are opened when they are needed.
func release(db *sql.DB, kept int) {
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(kept)
}

// close closes the connections, which must not be in use.
func (p *readers) close() error {
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
