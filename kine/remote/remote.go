// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/k3s-io/kine/pkg/drivers/generic"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// ConnectTimeout limits the opening of a connection.
	ConnectTimeout = 5 * time.Second
	// LockTimeout limits how long a statement waits for a lock. The only process that has one for longer is stopped.
	LockTimeout = 2 * time.Second
	// StatementTimeout limits a statement in the server.
	StatementTimeout = 30 * time.Second
	// MaxMessage is how many bytes one message of the server may have: a row of kine's table has two values of up to 3 MiB.
	MaxMessage = 16 << 20
	// timeout limits a group of writes, or a read, if the server doesn't respond.
	timeout = 30 * time.Second
)

// Database is the store of a space in a server. Until Close, it has at most one connection that writes, and
// [dbms.MaxReaders] that read.
type Database struct {
	dialect *Dialect
	owner   dbms.Owner

	writer    *sql.DB
	readers   *generic.Generic
	stop      context.CancelFunc
	done      sync.WaitGroup
	statement statements

	// epoch is the number of the takeover by which this process has the database; 0 before it.
	epoch atomic.Int64
	// session is the number of the last session that writes.
	session atomic.Int64
	// expected is the epoch before the takeover; nil if any will do.
	expected *int64
}

// statements are those of the database in the server's language.
type statements struct{ insert, epoch, size, compactedSize, compact string }

// New returns the database of a space in a server. Nothing is opened.
func New(d *Dialect, owner dbms.Owner) *Database {
	return &Database{dialect: d, owner: owner, statement: statements{
		insert:        d.Adapt(d.Insert),
		epoch:         "SELECT epoch FROM berth_owner WHERE one = 1",
		size:          d.Adapt("SELECT COALESCE(SUM(" + rowSize + "), 0) FROM kine WHERE id > ?"),
		compactedSize: d.Adapt("SELECT COALESCE(SUM(" + rowSize + "), 0) FROM kine WHERE id <= ? AND " + fmt.Sprintf(d.In, replaced)),
		compact:       d.Adapt(fmt.Sprintf(d.Compact, replaced)),
	}}
}

func (d *Database) String() string { return d.dialect.Name }

// Writer returns the pool of the one connection that writes.
func (d *Database) Writer() *sql.DB { return d.writer }

// Readers returns kine's statements over connections that can't write.
func (d *Database) Readers() *generic.Generic { return d.readers }

// Adapt returns a statement in the server's language.
func (d *Database) Adapt(statement string) string { return d.dialect.Adapt(statement) }

// Timeout limits a group of writes, or a read.
func (d *Database) Timeout() time.Duration { return timeout }

// Open takes the database over: it ends the sessions of an earlier process, which can't write from then on, not even if it was
// stopped in the middle of a transaction. Each transaction that writes, and each new connection, checks that nobody else has
// taken the database over. So a process that has lost it notices with its next write or connection. Until then, its reads are
// as current as the database, but its watches get no more changes.
//
// Open fails if the database belongs to another space, or has a table of something else.
func (d *Database) Open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	connector, err := d.connector(true)
	if err != nil {
		return err
	}
	d.writer = sql.OpenDB(connector)
	d.writer.SetMaxOpenConns(1)
	if err := d.writer.PingContext(ctx); err != nil {
		return err
	}
	if err := d.takeOver(ctx); err != nil {
		return err
	}
	for _, statement := range d.dialect.Schema {
		if _, err := d.writer.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return d.openReaders(ctx)
}

// OpenToRead opens the connections that read, without taking the database over. Only Copy and Close may be called afterwards. It
// fails as Open does, and if the database has no store.
func (d *Database) OpenToRead(ctx context.Context) error {
	if err := d.openReaders(ctx); err != nil {
		return err
	}
	has, err := owned(ctx, d.readers.DB, d.owner)
	if err == nil && !has {
		err = fmt.Errorf("%w: it is empty", sqlite.ErrNotStore)
	}
	return err
}

func (d *Database) openReaders(ctx context.Context) error {
	connector, err := d.connector(false)
	if err != nil {
		return err
	}
	// kine tries a connection again for five minutes. This one returns an error at once.
	conn, err := connector.Connect(ctx)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	poolCtx, stop := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, stop)()
	d.stop = stop
	d.readers, err = generic.OpenDB(poolCtx, &d.done, "", connector,
		generic.ConnectionPoolConfig{MaxOpen: dbms.MaxReaders, MaxIdle: dbms.MaxReaders}, d.dialect.Param, d.dialect.Numbered, nil)
	if err != nil {
		stop()
		return err
	}
	d.readers.TranslateStartKeyFunc = d.dialect.StartKey
	d.readers.ErrCode = func(error) string { return "" } // for kine's metrics, which aren't registered
	return nil
}

// Release closes all connections. The next call opens them again, if nobody has taken the database over.
func (d *Database) Release() error {
	d.writer.SetMaxIdleConns(0)
	d.writer.SetMaxIdleConns(1)
	d.readers.DB.SetMaxIdleConns(0)
	d.readers.DB.SetMaxIdleConns(dbms.MaxReaders)
	return nil
}

// Close closes all connections.
func (d *Database) Close(bool) (err error) {
	if d.stop != nil {
		d.stop()
	}
	d.done.Wait()
	if d.readers != nil {
		err = d.readers.DB.Close()
	}
	if d.writer != nil {
		err = errors.Join(err, d.writer.Close())
	}
	return err
}

// Files returns zeros: the server has the files.
func (d *Database) Files() (file, log int64) { return 0, 0 }

// Shrink does nothing: the server reuses free space.
func (d *Database) Shrink(context.Context, int64) (bool, error) { return false, nil }

// Checkpoint does nothing: the server has its own.
func (d *Database) Checkpoint(context.Context) error { return nil }

// Fault classifies an error.
func (d *Database) Fault(err error) dbms.Fault {
	var network net.Error
	switch {
	case err == nil:
		return dbms.None
	case errors.Is(err, dbms.ErrFenced):
		return dbms.Fenced
	case errors.Is(err, sqlite.ErrDamaged):
		return dbms.Damaged
	}
	if fault := d.dialect.Fault(err); fault != dbms.None {
		return fault
	}
	switch {
	case errors.Is(err, context.Canceled):
		return dbms.None
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		return dbms.Lost
	}
	return dbms.None
}
