// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/sqlite"
)

// CheckReceived checks a store that comes from somebody who isn't trusted, and that nobody writes to, before it is opened in
// the process of all spaces: that its pages are sound, that its indexes are there and have what its table has, that its
// revisions can go on, and that it has no more than limits allow, which are otherwise enforced when something is
// written. What is in the objects it does not check. It reads the whole file, until ctx ends.
//
// It fails with ErrNotStore or ErrDamaged if the store is not sound, and with [bounds.ErrExceeded] if it has too much.
func CheckReceived(ctx context.Context, path string, limits bounds.Limits) (err error) {
	if n := sqlite.SizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("%w: it has a log beside it, which no received store has", ErrDamaged)
	}
	if err := sqlite.CheckWhole(ctx, path, "integrity_check"); err != nil {
		return err
	}
	db := sqlite.OpenOne(path, sqlite.AtRestParams)
	defer func() { err = errors.Join(sqlite.AsDamage(err), db.Close()) }()
	if err := checkRows(ctx, db); err != nil {
		return err
	}
	return checkAmounts(ctx, db, limits)
}

// checkRows checks that a file, whose schema is known to be that of a store, has only what a store can have.
func checkRows(ctx context.Context, db *sql.DB) error {
	for _, check := range []func(context.Context, *sql.DB) error{checkIndexes, checkTypes, checkRevisions} {
		if err := check(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// checkIndexes checks that there are those by which a store finds its rows. Otherwise, opening it would make them.
func checkIndexes(ctx context.Context, db *sql.DB) error {
	var indexes int
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'kine'
		AND name IN ('kine_name_id_index', 'kine_name_prev_revision_uindex', 'kine_lease_index')`).Scan(&indexes); err != nil {
		return err
	}
	if indexes != 3 {
		return fmt.Errorf("%w: indexes are missing, %d of 3 are there", ErrDamaged, indexes)
	}
	return nil
}

// checkTypes checks that the columns have values of their types. SQLite stores any value in any column.
func checkTypes(ctx context.Context, db *sql.DB) error {
	var odd int64
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM kine WHERE typeof(name) != 'text'
		OR typeof(created) != 'integer' OR typeof(deleted) != 'integer' OR typeof(create_revision) != 'integer'
		OR typeof(prev_revision) != 'integer' OR typeof(lease) != 'integer'
		OR typeof(value) NOT IN ('blob', 'null') OR typeof(old_value) NOT IN ('blob', 'null')`).Scan(&odd); err != nil {
		return err
	}
	if odd > 0 {
		return fmt.Errorf("%w: %d rows have values of other types than a store", ErrDamaged, odd)
	}
	return nil
}

// checkRevisions checks what the next revision is made from, and how far the store says that it is compacted.
func checkRevisions(ctx context.Context, db *sql.DB) error {
	var first, last, next, counters, odd, marks, compacted int64
	if err := db.QueryRowContext(ctx, `SELECT COALESCE(MIN(id), 1), COALESCE(MAX(id), 0) FROM kine`).Scan(&first, &last); err != nil {
		return err
	}
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*), COUNT(CASE WHEN typeof(seq) != 'integer' THEN 1 END),
		COALESCE(MAX(CASE typeof(seq) WHEN 'integer' THEN seq END), 0) FROM sqlite_sequence`).Scan(&counters, &odd, &next); err != nil {
		return err
	}
	if first < 1 || max(last, next) > maxRevision || counters > 1 || odd > 0 {
		return fmt.Errorf("%w: its revisions begin at %d, end at %d, and continue after %d, by %d counters", ErrDamaged, first, last, next, counters)
	}
	if err := db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = ?`, sqlite.CompactRevKey).Scan(&marks, &compacted); err != nil {
		return err
	}
	if marks > 1 || compacted < 0 || compacted > last {
		return fmt.Errorf("%w: it says %d times how far it is compacted, last to %d of %d", ErrDamaged, marks, compacted, last)
	}
	return nil
}

// checkAmounts checks what an open store limits when something is written.
func checkAmounts(ctx context.Context, db *sql.DB, limits bounds.Limits) error {
	var longest, current, all int64
	if err := db.QueryRowContext(ctx, `WITH sizes AS (SELECT id, deleted, octet_length(name) AS key,
			COALESCE(octet_length(value), 0) AS value, COALESCE(octet_length(old_value), 0) AS old FROM kine)
		SELECT COALESCE(MAX(MAX(key, value, old)), 0),
			COALESCE(SUM(key + value + ?) FILTER (WHERE deleted = 0 AND id IN (SELECT MAX(id) FROM kine GROUP BY name)), 0),
			COALESCE(SUM(key + value + old + ?), 0) FROM sizes`, rowOverhead, rowOverhead).Scan(&longest, &current, &all); err != nil {
		return err
	}
	if longest > maxRequest {
		return fmt.Errorf("%w: it has a key or an object of %d bytes, and clients can write %d", ErrDamaged, longest, maxRequest)
	}
	have, err := countObjectsWith(ctx, db, countSQL, nil)
	if err != nil {
		return err
	}
	if err := checkNames(ctx, db); err != nil { // now that their sizes are known
		return err
	}
	// An open store compacts itself when its limit is reached, but deletions may exceed the limit by what is deleted.
	err = checkAmount(limits, bounds.StoreBytes, max(current, all/2))
	for i, kind := range kinds {
		err = errors.Join(err, checkAmount(limits, kind.quantity, have.count[i]))
	}
	return err
}

// checkNames checks that the keys are those that clients can write.
func checkNames(ctx context.Context, db *sql.DB) (err error) {
	rows, err := db.QueryContext(ctx, `SELECT CAST(name AS BLOB) FROM kine`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name sql.RawBytes
		if err := rows.Scan(&name); err != nil {
			return err
		}
		if key := string(name); !ValidKey(key) {
			return fmt.Errorf("%w: the key %q is not UTF-8, or has NUL bytes", ErrDamaged, key[:min(len(key), 256)])
		}
	}
	return rows.Err()
}

func checkAmount(limits bounds.Limits, q bounds.Quantity, have int64) error {
	if limit := limits.Of(q); have > limit {
		return fmt.Errorf("%w: the store has %d %s, and the limit %s is %d", bounds.ErrExceeded, have, q.Bound().Unit, q, limit)
	}
	return nil
}
