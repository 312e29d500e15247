// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	"github.com/mattn/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/kine/dbms"
)

// insertSQL appends a row, with a copy of the value that it replaces. insertAtSQL does so at a revision.
const (
	insertSQL = `
	INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT value FROM kine WHERE id = ?5))`
	insertAtSQL = `
	INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value, id)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, (SELECT value FROM kine WHERE id = ?5), ?8)`
)

// shrinkPages is how many pages are freed at once. Writers wait for that, some milliseconds.
const shrinkPages = 256

// Database is the store in a file that exists and is sound. kine's engine runs on it.
type Database struct {
	path    string
	params  string // of the connection that writes
	writer  *sql.DB
	readers *Readers
}

// NewDatabase returns the database in the file at path.
func NewDatabase(path string) *Database { return &Database{path: path, params: WriterParams} }

// NewCache returns the database in the file at path, whose loss loses no data.
func NewCache(path string) *Database { return &Database{path: path, params: CacheParams} }

func (d *Database) String() string { return d.path }

// Open opens the connections. It moves the write-ahead log of a killed process into the file, and creates indexes that another
// version of kine did not.
func (d *Database) Open(ctx context.Context) (err error) {
	d.writer = OpenOne(d.path, d.params)
	for _, stmt := range append(Schema, "PRAGMA wal_checkpoint(TRUNCATE)") {
		if _, err := d.writer.ExecContext(ctx, stmt); err != nil {
			return err
		}
	}
	d.readers, err = OpenReaders(ctx, d.path)
	return err
}

// Writer returns the pool of the one connection that writes.
func (d *Database) Writer() *sql.DB { return d.writer }

// Readers returns kine's statements over connections that can't write.
func (d *Database) Readers() *generic.Generic { return d.readers.Generic }

// Adapt returns the statement, as statements are written for SQLite.
func (d *Database) Adapt(statement string) string { return statement }

// Timeout is zero: a disk that hangs can't be interrupted.
func (d *Database) Timeout() time.Duration { return 0 }

// Begin starts a transaction. The lock file has kept other processes away since the store was opened.
func (d *Database) Begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	return conn.BeginTx(ctx, nil)
}

// Insert appends a row. Its revision is SQLite's choice.
func (d *Database) Insert(_ context.Context, tx *sql.Tx, _ int64, values []any) (id int64, exists bool, err error) {
	return insert(tx, insertSQL, values)
}

// InsertAt appends a row as a revision, which is later than all before.
func (d *Database) InsertAt(tx *sql.Tx, id int64, values []any) (exists bool, err error) {
	_, exists, err = insert(tx, insertAtSQL, append(slices.Clip(values), id))
	return exists, err
}

func insert(tx *sql.Tx, statement string, values []any) (id int64, exists bool, err error) {
	res, err := tx.Exec(statement, values...)
	var e sqlite3.Error
	if errors.As(err, &e) && e.ExtendedCode == sqlite3.ErrConstraintUnique {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	id, err = res.LastInsertId()
	return id, false, err
}

// Commit commits a transaction of Begin.
func (d *Database) Commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }

// Size returns how many bytes of the file are in use, and how many are free.
func (d *Database) Size(ctx context.Context, q dbms.Querier, _, _ int64) (used, free int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size, freelist_count * page_size
		FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`).Scan(&used, &free)
	return used, free, err
}

// Compact removes replaced versions. The pages that it frees are found by Size.
func (d *Database) Compact(ctx context.Context, tx *sql.Tx, revision int64) (int64, error) {
	_, err := tx.ExecContext(ctx, CompactSQL, revision, revision)
	return 0, err
}

// Shrink returns a few free pages to the disk. It reports false for a file that kine itself created, which can't shrink.
func (d *Database) Shrink(ctx context.Context, free int64) (bool, error) {
	// SQLite frees a page at each step of the query.
	rows, err := d.writer.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", shrinkPages))
	if err != nil {
		return false, err
	}
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		_ = rows.Close()
		return false, err
	}
	if err := rows.Close(); err != nil {
		return false, err
	}
	_, left, err := d.Size(ctx, d.writer, 0, 0)
	return left < free, err
}

// Checkpoint moves the write-ahead log into the file.
func (d *Database) Checkpoint(ctx context.Context) error { return Checkpoint(ctx, d.writer) }

// Recover is never needed: a file has no connection that can be lost.
func (d *Database) Recover(context.Context) (int64, error) {
	return 0, errors.New("a file has no connection")
}

// Release closes the connections, and so frees SQLite's memory. When the last one is closed, the file has no write-ahead log.
func (d *Database) Release() error {
	// SQLite does this when it closes the last connection, but without reporting an error of the disk.
	if err := d.Checkpoint(context.Background()); err != nil {
		return err
	}
	Release(d.readers.DB, KeptReaders)
	Release(d.writer, 1)
	FreeOSMemory()
	return nil
}

// Close closes the connections, and leaves a sound file without a write-ahead log. It may be called after a failed Open.
func (d *Database) Close(sound bool) (err error) {
	if d.readers != nil {
		err = d.readers.Close()
	}
	if d.writer != nil {
		if sound {
			err = errors.Join(err, d.Checkpoint(context.Background()))
		}
		err = errors.Join(err, d.writer.Close())
	}
	return AsDamage(err)
}

// Files returns the sizes of the file and of its write-ahead log.
func (d *Database) Files() (file, log int64) { return SizeOf(d.path), SizeOf(d.path + "-wal") }

// Copy writes the store to the file at path, without free pages.
func (d *Database) Copy(ctx context.Context, path string) error {
	db := OpenOne(d.path, ReaderParams)
	defer db.Close()
	_, err := db.ExecContext(ctx, "VACUUM INTO ?", path)
	return AsDamage(err)
}

// Fault classifies an error of SQLite.
func (d *Database) Fault(err error) dbms.Fault {
	var e sqlite3.Error
	switch {
	case errors.Is(err, ErrDamaged):
		return dbms.Damaged
	case !errors.As(err, &e):
		return dbms.None
	case e.Code == sqlite3.ErrInterrupt:
		return dbms.Interrupted
	case e.Code == sqlite3.ErrFull, e.ExtendedCode != sqlite3.ErrIoErrFsync && (e.SystemErrno == unix.EDQUOT || e.SystemErrno == unix.ENOSPC):
		return dbms.Full
	case e.Code == sqlite3.ErrCorrupt, e.Code == sqlite3.ErrNotADB:
		return dbms.Damaged
	case e.ExtendedCode == sqlite3.ErrIoErrFsync, e.ExtendedCode == sqlite3.ErrIoErrDirFsync:
		return dbms.Unconfirmed
	case e.Code == sqlite3.ErrBusy:
		return dbms.Busy
	}
	return dbms.Failed
}
