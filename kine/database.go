// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/remote"
	"github.com/berth-dev/berth/kine/sqlite"
)

// database is what the engine needs from the SQL database of a store. Everything else is the same for all databases: the
// committer, the hub, the log, the size limit, compactions, and leases.
//
// A database has one connection that writes, and at most [dbms.MaxReaders] that can't. Statements are kine's, with "?" for
// parameters. A method that gets a connection or a transaction uses only that one.
type database interface {
	// String names the database in logs and errors, without a password.
	String() string
	// Open opens the connections, and creates what is missing of the tables. ctx limits the opening.
	Open(ctx context.Context) error
	// Writer returns the pool of the one connection that writes.
	Writer() *sql.DB
	// Readers returns kine's statements over the connections that read.
	Readers() *generic.Generic
	// Adapt returns a statement in the database's own language.
	Adapt(statement string) string
	// Timeout limits a group of writes or a read. Zero means that the database can't hang.
	Timeout() time.Duration
	// Fault classifies an error.
	Fault(err error) dbms.Fault

	// Begin starts a transaction that writes. It fails with a Fenced error if another process has opened the store.
	Begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error)
	// Insert appends a row as the revision next, or later. exists means that its key has another version than expected; the
	// transaction can continue.
	Insert(ctx context.Context, tx *sql.Tx, next int64, values []any) (id int64, exists bool, err error)
	// Commit commits a transaction of Begin.
	Commit(ctx context.Context, tx *sql.Tx) error
	// Size returns how many bytes are in use and how many are free, when used were in use before the revisions after a
	// given one were written.
	Size(ctx context.Context, q dbms.Querier, used, after int64) (usedNow, free int64, err error)
	// Compact removes the versions that were replaced up to a revision, and returns how many bytes that frees, as far as
	// Size does not find out by itself.
	Compact(ctx context.Context, tx *sql.Tx, revision int64) (freed int64, err error)
	// Shrink returns some of the free space to the disk. It reports false if there was none that can be returned.
	Shrink(ctx context.Context, free int64) (bool, error)
	// Checkpoint is called after many changes, when the writer is free.
	Checkpoint(ctx context.Context) error
	// Recover connects again after a Lost error, when no transaction of an earlier connection can commit any more. It
	// returns the last revision in the database.
	Recover(ctx context.Context) (last int64, err error)

	// Release closes all connections until the next use.
	Release() error
	// Close closes all connections. sound is false if the data has been found damaged.
	Close(sound bool) error
	// Files returns the sizes of the database's file and write-ahead log, if it has them.
	Files() (file, log int64)
	// Copy writes the rows at one revision to a SQLite file, which is empty.
	Copy(ctx context.Context, path string) error
}

// cachedDatabase is a database that reads from a cache.
type cachedDatabase interface {
	// Fresh fails if another process may have opened the store longer than a moment ago.
	Fresh(ctx context.Context) error
}

var _ database = (*sqlite.Database)(nil)

// withTimeout limits ctx by the database's timeout, if it has one.
func withTimeout(ctx context.Context, db database) (context.Context, context.CancelFunc) {
	if limit := db.Timeout(); limit > 0 {
		return context.WithTimeout(ctx, limit)
	}
	return ctx, func() {}
}

// readContext returns the context of a read. A read of a file goes on after its caller has gone, because SQLite's driver would
// start a goroutine for each row of a list to wait for the context, which takes longer than reading the row. A server may hang.
func readContext(ctx context.Context, db database) (context.Context, context.CancelFunc) {
	if db.Timeout() == 0 {
		return context.WithoutCancel(ctx), func() {}
	}
	return withTimeout(ctx, db)
}

// inTx runs write in a transaction that writes, and then committed, before anybody else has the connection.
func inTx(ctx context.Context, db database, write func(*sql.Tx) error, committed func()) error {
	conn, err := db.Writer().Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := db.Begin(ctx, conn)
	if err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	if err := db.Commit(ctx, tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	committed()
	return nil
}

// ignoreDone returns nil for a transaction that has already ended.
func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// dialect connects kine's log to the file: reads use the connections of the embedded Generic, which can't write, and
// writes use the committer. Compactions don't use it.
type dialect struct {
	*generic.Generic
	committer *committer
}

var _ kineserver.Dialect = (*dialect)(nil)

//nolint:revive // the interface's names
func (d *dialect) Insert(ctx context.Context, key string, create, delete bool, createRevision, previousRevision, ttl int64, value []byte) (int64, error) {
	return d.committer.append(&row{ctx: ctx, key: key, value: value, frees: frees(key, delete), creates: create, deletes: delete,
		args: []any{key, number(create), number(delete), createRevision, previousRevision, ttl, value}})
}

// number is how the table has a boolean.
func number(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// serverDatabase is the database of a store in a server, which one process at a time has taken over. It has the files of the
// space, too.
type serverDatabase interface {
	database
	// Epoch returns the number of the takeover by which this process has the database; 0 before it.
	Epoch() int64
	// CheckEpoch fails with a Fenced error if another process has taken the database over.
	CheckEpoch(ctx context.Context) error
	// Expect has Open and TakeOver fail with a Fenced error if the database has another epoch before.
	Expect(epoch int64)

	// TakeOver is an Open after which no engine can run on the database.
	TakeOver(ctx context.Context) error
	// Load replaces all rows by those of the store in a SQLite file that is sound, and increases the revision as [Restore] does.
	// After an error, the database has either the old rows or the new ones.
	Load(ctx context.Context, snapshot string) error
	// Drop deletes what the database has of the space.
	Drop(ctx context.Context) error
	// SavedFiles returns the saved files. SaveFiles replaces them, if they differ.
	SavedFiles(ctx context.Context) (dbms.Files, error)
	SaveFiles(ctx context.Context, data map[string][]byte) error

	// OpenToRead opens the database for Copy, without taking it over.
	OpenToRead(ctx context.Context) error
	// OpenToReadFiles opens the database for ReadFiles, without taking it over.
	OpenToReadFiles(ctx context.Context) error
	// ReadFiles returns the saved files, and the epoch of the database.
	ReadFiles(ctx context.Context) (files dbms.Files, epoch int64, err error)
}

// sqlServer is a database in an SQL server.
type sqlServer struct{ *remote.Database }

var _ serverDatabase = sqlServer{}

// TakeOver implements serverDatabase.
func (s sqlServer) TakeOver(ctx context.Context) error { return s.Open(ctx) }

// Load implements serverDatabase.
func (s sqlServer) Load(ctx context.Context, snapshot string) error {
	const lastSQL = "SELECT COALESCE(MAX(id), 0) FROM kine"
	var before int64
	if err := s.Writer().QueryRowContext(ctx, lastSQL).Scan(&before); err != nil {
		return err
	}
	return inTx(ctx, s, func(tx *sql.Tx) error {
		if err := s.Database.Load(ctx, tx, snapshot); err != nil {
			return err
		}
		var last int64
		if err := tx.QueryRowContext(ctx, lastSQL).Scan(&last); err != nil {
			return err
		}
		compact := func() error {
			_, err := s.Compact(ctx, tx, last)
			return err
		}
		return jump(ctx, tx, last, before, compact, s.Adapt)
	}, func() {})
}

// SavedFiles implements serverDatabase.
func (s sqlServer) SavedFiles(ctx context.Context) (files dbms.Files, err error) {
	err = inTx(ctx, s, func(tx *sql.Tx) (err error) {
		files, err = s.Database.SavedFiles(ctx, tx)
		return err
	}, func() {})
	return files, err
}

// SaveFiles implements serverDatabase.
func (s sqlServer) SaveFiles(ctx context.Context, data map[string][]byte) error {
	return inTx(ctx, s, func(tx *sql.Tx) error { return s.Database.SaveFiles(ctx, tx, data) }, func() {})
}

// keyValueServer is a database in a server of keys and values.
type keyValueServer struct{ *mirror.Database }

var _ serverDatabase = keyValueServer{}

// Load implements serverDatabase.
func (s keyValueServer) Load(ctx context.Context, snapshot string) error {
	return s.Database.Load(ctx, snapshot, afterRestore)
}
