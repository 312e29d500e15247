// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	kineserver "github.com/k3s-io/kine/pkg/server"
)

// compactSQL removes what was superseded or deleted up to a revision (given twice), from where the last compaction ended.
const compactSQL = `
	WITH span AS (
		SELECT id, prev_revision, deleted FROM kine
		WHERE name != 'compact_rev_key' AND id <= ?
			AND id > (SELECT COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = 'compact_rev_key'))
	DELETE FROM kine WHERE id <= ? AND id IN (
		SELECT prev_revision FROM span WHERE prev_revision != 0
		UNION SELECT id FROM span WHERE deleted != 0)`

// dialect is how kine's log talks to the file: reads go to the embedded Generic's connections, which can't write, and
// writes to the writer's one.
type dialect struct {
	*generic.Generic
	writer    *pool
	committer *committer
	// compactErr is what stopped the compaction that runs. kine logs it and reports success.
	compactErr error
}

var _ kineserver.Dialect = (*dialect)(nil)

//nolint:revive // the interface's names
func (d *dialect) Insert(ctx context.Context, key string, create, delete bool, createRevision, previousRevision, ttl int64, value []byte) (int64, error) {
	return d.committer.append(ctx, key, create, delete, createRevision, previousRevision, ttl, value, previousRevision)
}

func (d *dialect) Fill(ctx context.Context, revision int64) error {
	return d.writer.Fill(ctx, revision)
}

func (d *dialect) DeleteRevision(ctx context.Context, revision int64) error {
	return d.writer.DeleteRevision(ctx, revision)
}

func (d *dialect) SetCompactRevision(ctx context.Context, revision int64) error {
	return d.writer.SetCompactRevision(ctx, revision)
}

func (d *dialect) Compact(ctx context.Context, revision int64) (int64, error) {
	return d.writer.Compact(ctx, revision)
}

// PostCompact gives the log's room back, which a compaction may have made large.
func (d *dialect) PostCompact(ctx context.Context) error {
	return d.note(d.writer.checkpoint(ctx))
}

func (d *dialect) BeginTx(ctx context.Context, opts *sql.TxOptions) (kineserver.Transaction, error) {
	tx, err := d.writer.BeginTx(ctx, opts)
	if err != nil {
		return nil, d.note(err)
	}
	return transaction{tx, d}, nil
}

func (d *dialect) note(err error) error {
	d.compactErr = errors.Join(d.compactErr, err)
	return err
}

// transaction, which only compactions use, ends without ending the process. kine's own does that when a commit fails: on
// a full disk, or when a compaction takes too long. What isn't compacted now is compacted by the next.
type transaction struct {
	kineserver.Transaction
	d *dialect
}

func (t transaction) Compact(ctx context.Context, revision int64) (int64, error) {
	n, err := t.Transaction.Compact(ctx, revision)
	return n, t.d.note(err)
}

func (t transaction) SetCompactRevision(ctx context.Context, revision int64) error {
	return t.d.note(t.Transaction.SetCompactRevision(ctx, revision))
}

func (t transaction) MustCommit()   { _ = t.d.note(t.Commit()) }
func (t transaction) MustRollback() { _ = t.Rollback() } // after a commit, or an error that was noted
