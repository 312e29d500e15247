// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	columns = "id, name, created, deleted, create_revision, prev_revision, lease, value, old_value"
	// copyRows is how many rows are read at once for a copy.
	copyRows  = 100
	insertRow = "INSERT INTO kine (" + columns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

// row is a row of kine's table.
type row struct {
	id, created, deleted, createRevision, prevRevision, lease int64
	name                                                      string
	value, oldValue                                           []byte
}

func (r *row) fields() []any {
	return []any{&r.id, &r.name, &r.created, &r.deleted, &r.createRevision, &r.prevRevision, &r.lease, &r.value, &r.oldValue}
}

func (r *row) values() []any {
	return []any{r.id, r.name, r.created, r.deleted, r.createRevision, r.prevRevision, r.lease, r.value, r.oldValue}
}

// Copy writes the rows at one revision to the SQLite file at path, which is empty. It uses one connection that reads.
func (d *Database) Copy(ctx context.Context, path string) error {
	from, err := d.readers.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = from.Rollback() }() // it has written nothing
	db := sqlite.OpenOne(path, sqlite.CreatorParams)
	defer db.Close()
	for _, statement := range sqlite.Schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	to, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = to.Rollback() }() // no effect after the commit
	if err := copyTable(ctx, from, d.Adapt, func(r *row) error {
		_, err := to.Exec(insertRow, r.values()...)
		return err
	}); err != nil {
		return err
	}
	if err := to.Commit(); err != nil {
		return err
	}
	return sqlite.FinishCopy(ctx, db, path)
}

// Load replaces all rows by those of the store in a SQLite file that is sound and that nobody writes to. The transaction is one
// of Begin.
func (d *Database) Load(ctx context.Context, tx *sql.Tx, path string) error {
	db := sqlite.OpenOne(path, sqlite.AtRestParams)
	defer db.Close()
	from, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = from.Rollback() }() // it has written nothing
	if _, err := tx.ExecContext(ctx, "DELETE FROM kine"); err != nil {
		return err
	}
	insert := d.Adapt(insertRow)
	same := func(statement string) string { return statement }
	return copyTable(ctx, from, same, func(r *row) error {
		_, err := tx.ExecContext(ctx, insert, r.values()...)
		return err
	})
}

// copyTable passes all rows, in their order.
func copyTable(ctx context.Context, from *sql.Tx, adapt func(string) string, write func(*row) error) error {
	statement := adapt("SELECT " + columns + " FROM kine WHERE id > ? ORDER BY id LIMIT ?")
	last, n := int64(-1), copyRows
	for n == copyRows {
		rows, err := from.QueryContext(ctx, statement, last, copyRows)
		if err != nil {
			return err
		}
		n, err = copyBatch(rows, &last, write)
		if err != nil {
			return err
		}
	}
	return nil
}

func copyBatch(rows *sql.Rows, last *int64, write func(*row) error) (n int, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	for ; rows.Next(); n++ {
		var r row
		if err := rows.Scan(r.fields()...); err != nil {
			return n, err
		}
		if err := write(&r); err != nil {
			return n, err
		}
		*last = r.id
	}
	return n, rows.Err()
}

// Drop deletes Berth's tables. Open must have succeeded.
func (d *Database) Drop(ctx context.Context) error {
	// The owner comes last, so that Drop can be repeated. What a tenant has made of the tables, such as a view, goes with them.
	for _, table := range []string{"kine", "berth_files", "berth_owner"} {
		if _, err := d.writer.ExecContext(ctx, "DROP TABLE IF EXISTS "+table+" CASCADE"); err != nil {
			return fmt.Errorf("drop table %s: %w", table, err)
		}
	}
	return nil
}
