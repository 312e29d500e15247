// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// currentSQL reads the newest version of each key that exists.
const currentSQL = `SELECT id, name, created, create_revision, lease, value FROM kine AS kv
	WHERE deleted = 0 AND id = (SELECT MAX(id) FROM kine WHERE name = kv.name) ORDER BY id`

// OpenToRead makes sure that the log has a store, for Copy. It takes nothing over.
func (d *Database) OpenToRead(ctx context.Context) error {
	state, err := d.log.State(ctx)
	if err == nil && state.Epoch == 0 {
		err = fmt.Errorf("%w: it is empty", sqlite.ErrNotStore)
	}
	return err
}

// Copy writes a store to the SQLite file at path, which is empty: the cache if it is open, or else what the log has at one
// moment.
func (d *Database) Copy(ctx context.Context, path string) (err error) {
	if d.open {
		return d.Database.Copy(ctx, path)
	}
	db := sqlite.OpenOne(path, sqlite.CreatorParams)
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, statement := range sqlite.Schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	if err := fill(ctx, db, d.log, 0, math.MaxInt64, func(int64) error { return nil }); err != nil {
		return err
	}
	return sqlite.FinishCopy(ctx, db, path)
}

// Load replaces all rows by the current ones of the store in a SQLite file that is sound and that nobody writes to. next returns
// the new revision from that of the file and that before.
func (d *Database) Load(ctx context.Context, path string, next func(last, before int64) (int64, error)) error {
	state, err := d.log.State(ctx)
	if err != nil {
		return err
	}
	db := sqlite.OpenOne(path, sqlite.AtRestParams)
	defer db.Close()
	from, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Rollback() }() // it has written nothing
	var last, marks int64
	if err := from.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0), COUNT(CASE name WHEN ? THEN 1 END) FROM kine", sqlite.CompactRevKey).Scan(&last, &marks); err != nil {
		return err
	}
	if marks == 0 {
		return fmt.Errorf("%w: it doesn't say how far it was compacted", sqlite.ErrNotStore)
	}
	revision, err := next(last, state.Revision)
	if err != nil {
		return err
	}
	return d.log.Replace(ctx, revision, func(put func(Row) error) error { return currentRows(ctx, from, put) })
}

func currentRows(ctx context.Context, from *sql.Tx, put func(Row) error) (err error) {
	rows, err := from.QueryContext(ctx, currentSQL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		r, err := scanRow(rows)
		if err == nil {
			err = put(r)
		}
		if err != nil {
			return err
		}
	}
	return rows.Err()
}

// scanRow reads a row of currentSQL.
func scanRow(rows *sql.Rows) (r Row, err error) {
	var created, createRevision, lease sql.NullInt64
	err = rows.Scan(&r.Revision, &r.Key, &created, &createRevision, &lease, &r.Value)
	if r.CreateRevision, r.Lease = createRevision.Int64, lease.Int64; created.Int64 != 0 {
		r.CreateRevision = r.Revision
	}
	return r, err
}

// Drop deletes what the log has of the space. TakeOver must have succeeded.
func (d *Database) Drop(ctx context.Context) error { return d.log.Drop(ctx) }

// SavedFiles returns the saved files.
func (d *Database) SavedFiles(ctx context.Context) (dbms.Files, error) {
	if err := d.CheckEpoch(ctx); err != nil {
		return dbms.Files{}, err
	}
	files, _, err := d.log.Files(ctx)
	return files, err
}

// SaveFiles replaces the saved files, if they differ. It fails if they are too large.
func (d *Database) SaveFiles(ctx context.Context, data map[string][]byte) error {
	if err := dbms.CheckSize(data); err != nil {
		return err
	}
	saved, err := d.SavedFiles(ctx)
	if err != nil || saved.Epoch > 0 && maps.EqualFunc(saved.Data, data, bytes.Equal) {
		return err
	}
	return d.log.SaveFiles(ctx, data)
}

// OpenToReadFiles does nothing: ReadFiles connects.
func (d *Database) OpenToReadFiles(context.Context) error { return nil }

// ReadFiles returns the saved files, and the epoch of the log. It takes nothing over. It returns zeros if no process has opened
// the log for the space yet.
func (d *Database) ReadFiles(ctx context.Context) (files dbms.Files, epoch int64, err error) {
	files, state, err := d.log.Files(ctx)
	if err != nil || state.Epoch == 0 {
		return dbms.Files{}, 0, err
	}
	if files.Data == nil {
		files.Data = map[string][]byte{}
	}
	return files, state.Epoch, nil
}
