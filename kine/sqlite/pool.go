// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/mattn/go-sqlite3"

	"github.com/berth-dev/berth/kine/dbms"
)

// KeptReaders is how many connections are kept for the next reads until the store is idle. A used connection holds about
// 0.5 MiB.
const KeptReaders = 2

// Readers is kine's statements over connections that can't write.
type Readers struct {
	*generic.Generic
	stop context.CancelFunc
	done sync.WaitGroup
}

// OpenReaders opens the store at path for reading. ctx bounds the opening only.
func OpenReaders(ctx context.Context, path string) (*Readers, error) {
	// kine tries a connection again for five minutes. One of ours shows an error at once.
	probe := OpenOne(path, ReaderParams)
	defer probe.Close()
	if err := probe.PingContext(ctx); err != nil {
		return nil, err
	}
	poolCtx, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, stop)()
	p := &Readers{stop: stop}
	var err error
	p.Generic, err = generic.OpenDB(poolCtx, &p.done, "sqlite3", connector{dsn(path, ReaderParams)},
		generic.ConnectionPoolConfig{MaxOpen: dbms.MaxReaders, MaxIdle: KeptReaders}, "?", false, nil)
	if err != nil {
		stop()
		p.done.Wait()
		return nil, err
	}
	useLists(p.Generic)
	p.ErrCode = errCode
	return p, nil
}

// FinishCopy closes the database of a copy at path, which then has no write-ahead log.
func FinishCopy(ctx context.Context, db *sql.DB, path string) error {
	if err := errors.Join(Checkpoint(ctx, db), db.Close()); err != nil {
		return err
	}
	if n := SizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("%d bytes stayed in the log of the copy", n)
	}
	return nil
}

// Checkpoint moves the write-ahead log into the file, and cuts it off if nobody reads. Asked for, it does so even if the
// last statement was interrupted; SQLite's own, at the end of the last connection, then doesn't.
func Checkpoint(ctx context.Context, db *sql.DB) error {
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

// Release closes the connections that aren't in use, of which kept would be kept. Others are opened when they are needed.
func Release(db *sql.DB, kept int) {
	db.SetMaxIdleConns(0)
	db.SetMaxIdleConns(kept)
}

// Close closes the connections, which must not be in use.
func (p *Readers) Close() error {
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
