// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Row is a row of a store: a version of a key, or its deletion. The value that it replaces is not part of it, because an earlier row has
// it.
type Row struct {
	ID               int64 // the revision
	Name             string
	Created, Deleted bool
	CreateRevision   int64
	PrevRevision     int64
	Lease            int64
	Value            []byte // nil for NULL
}

// Size returns about how many bytes the row takes in memory.
func (r *Row) Size() int { return len(r.Name) + len(r.Value) + 64 }

const rowsSQL = `SELECT id, name, created, deleted, create_revision, prev_revision, lease, value FROM kine WHERE id > ? ORDER BY id`

// Querier runs a query.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// RowsAfter returns rows in the order of their revisions, from the first one after a revision until they have most bytes; at least one,
// if there is one.
func RowsAfter(ctx context.Context, db Querier, after int64, most int) (found []Row, err error) {
	rows, err := db.QueryContext(ctx, rowsSQL, after)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := 0; size < most && rows.Next(); {
		var r Row
		if err := rows.Scan(&r.ID, &r.Name, &r.Created, &r.Deleted, &r.CreateRevision, &r.PrevRevision, &r.Lease, &r.Value); err != nil {
			return nil, err
		}
		found = append(found, r)
		size += r.Size()
	}
	return found, rows.Err()
}

const replaySQL = `
	INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value, old_value)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, (SELECT value FROM kine WHERE id = ?6))`

// replayedBytes is how many bytes of rows are appended before those are removed that later ones have replaced. So a history of any length takes
// as much space as its end, and this.
const replayedBytes = 16 << 20

// Replay opens the store at path, which nobody else has open, and calls do with a function that appends rows to it. The rows of each call are
// written in one transaction, and may be compacted. The file has no write-ahead log afterwards. After an error, it must not be used.
func Replay(ctx context.Context, path string, do func(add func([]Row) error) error) error {
	db := OpenOne(path, CreatorParams)
	size := 0
	err := do(func(rows []Row) error {
		if err := replay(ctx, db, rows); err != nil {
			return err
		}
		for i := range rows {
			size += rows[i].Size()
		}
		if size < replayedBytes {
			return nil
		}
		size = 0
		return compactReplayed(ctx, db, rows[len(rows)-1].ID-1) // the last one stays, as it has the revision of the store
	})
	if err == nil {
		err = Checkpoint(context.WithoutCancel(ctx), db)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return AsDamage(err)
	}
	if n := SizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("%d bytes stayed in the log of %s", n, path)
	}
	return nil
}

func compactReplayed(ctx context.Context, db *sql.DB, revision int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	if _, err := tx.ExecContext(ctx, CompactSQL, revision, revision); err != nil {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	if _, err := tx.ExecContext(ctx, SetCompactedSQL, revision); err != nil {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return Checkpoint(ctx, db)
}

func replay(ctx context.Context, db *sql.DB, rows []Row) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	statement, err := tx.PrepareContext(ctx, replaySQL)
	if err != nil {
		return err
	}
	defer statement.Close()
	for _, r := range rows {
		if _, err := statement.ExecContext(ctx, r.ID, r.Name, r.Created, r.Deleted, r.CreateRevision, r.PrevRevision, r.Lease, r.Value); err != nil {
			return fmt.Errorf("append revision %d: %w", r.ID, err)
		}
	}
	return tx.Commit()
}

// LastRow returns the row with the highest revision of the store at path, which nobody has open.
func LastRow(ctx context.Context, path string) (last Row, err error) {
	db := OpenOne(path, AtRestParams)
	defer func() { err = errors.Join(AsDamage(err), db.Close()) }()
	var id int64
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM kine").Scan(&id); err != nil {
		return Row{}, err
	}
	rows, err := RowsAfter(ctx, db, id-1, 1)
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("%w: it has no rows", ErrDamaged)
	}
	if err != nil {
		return Row{}, err
	}
	return rows[0], nil
}
