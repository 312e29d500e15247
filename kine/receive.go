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
// the process of all spaces: that its pages are sound and its indexes have what its table has, that its revisions leave room
// for more, and that it has no more than limits allow, which are otherwise enforced when something is written. What is in the
// objects it does not check. It reads the whole file, until ctx ends.
//
// It fails with ErrNotStore or ErrDamaged if the store is not sound, and with a [bounds.ExceededError] if it has too much.
func CheckReceived(ctx context.Context, path string, limits bounds.Limits) (err error) {
	if err := sqlite.CheckWhole(ctx, path, "integrity_check"); err != nil {
		return err
	}
	db := sqlite.OpenOne(path, sqlite.AtRestParams)
	defer func() { err = errors.Join(sqlite.AsDamage(err), db.Close()) }()
	if err := checkRevisions(ctx, db); err != nil {
		return err
	}
	return checkAmounts(ctx, db, limits)
}

// checkRevisions checks what SQLite makes the next revision from.
func checkRevisions(ctx context.Context, db *sql.DB) error {
	var first, last, next, counters, odd int64
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
	return nil
}

// checkAmounts checks what an open store limits when something is written.
func checkAmounts(ctx context.Context, db *sql.DB, limits bounds.Limits) error {
	var longest, size int64
	if err := db.QueryRowContext(ctx, `SELECT
		COALESCE(MAX(MAX(octet_length(name), COALESCE(octet_length(value), 0), COALESCE(octet_length(old_value), 0))), 0),
		COALESCE(SUM(octet_length(value)) FILTER (WHERE deleted = 0 AND id IN (SELECT MAX(id) FROM kine GROUP BY name)), 0)
		FROM kine`).Scan(&longest, &size); err != nil {
		return err
	}
	if longest > maxRequest {
		return fmt.Errorf("%w: it has a key or an object of %d bytes, and clients can write %d", ErrDamaged, longest, maxRequest)
	}
	have, err := countObjects(ctx, db, nil)
	if err != nil {
		return err
	}
	// Replaced versions and indexes, which count for an open store, are not part of this size.
	err = limits.Check(bounds.StoreBytes, size)
	for i, kind := range kinds {
		err = errors.Join(err, limits.Check(kind.quantity, have.count[i]))
	}
	return err
}
