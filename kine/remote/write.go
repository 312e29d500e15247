// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"database/sql"

	"github.com/berth-dev/berth/kine/dbms"
)

const (
	// rowSize is about how many bytes a row takes: in the indexes, its key two more times.
	rowSize = "3 * OCTET_LENGTH(name) + COALESCE(OCTET_LENGTH(value), 0) + COALESCE(OCTET_LENGTH(old_value), 0) + 100"
	// replaced selects the versions that were replaced or deleted up to a revision, from where the last compaction ended.
	replaced = `SELECT prev_revision AS id FROM kine WHERE prev_revision != 0 AND ` + span + `
		UNION SELECT id FROM kine WHERE deleted != 0 AND ` + span
	span = `name != 'compact_rev_key' AND id <= ?
		AND id > (SELECT COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = 'compact_rev_key')`
)

// Insert appends a row as the revision next. It fails with a Lost error if that exists, because only another client can have
// written it.
func (d *Database) Insert(ctx context.Context, tx *sql.Tx, next int64, values []any) (id int64, exists bool, err error) {
	const previous = 4 // of values
	args := append(append(make([]any, 0, len(values)+2), next), values...)
	res, err := tx.ExecContext(ctx, d.statement.insert, append(args, values[previous])...)
	if d.dialect.Exists(err) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	n, err := res.RowsAffected()
	return next, n == 0, err
}

// Size adds the rows after a revision to those before.
func (d *Database) Size(ctx context.Context, q dbms.Querier, used, after int64) (usedNow, free int64, err error) {
	var more int64
	err = q.QueryRowContext(ctx, d.statement.size, after).Scan(&more)
	return used + more, 0, err
}

// Compact removes replaced versions, and returns their size.
func (d *Database) Compact(ctx context.Context, tx *sql.Tx, revision int64) (freed int64, err error) {
	if err := tx.QueryRowContext(ctx, d.statement.compactedSize, revision, revision, revision).Scan(&freed); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, d.statement.compact, revision, revision, revision)
	return freed, err
}

// Commit commits a transaction of Begin.
func (d *Database) Commit(_ context.Context, tx *sql.Tx) error { return tx.Commit() }
