// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	compactRetain = 1000 // newest revisions that a client's compaction never removes
	compactBatch  = 1000 // rows in one transaction, for which writers wait

	nextBatchSQL = `SELECT COALESCE((SELECT id FROM kine WHERE id > ? AND id < ? ORDER BY id LIMIT 1 OFFSET ?), ?)`
)

// Start prepares the log. It does what kine's Start does, except for repairing an old fault that these files never had.
func (l *eventLog) Start(ctx context.Context) error {
	var rows int
	if err := l.d.Generic.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM kine WHERE name = 'compact_rev_key'").Scan(&rows); err != nil {
		return l.health.see(err)
	}
	if rows == 0 { // the row with the compacted revision
		if _, err := l.Append(ctx, &kineserver.Event{Create: true, KV: &kineserver.KeyValue{Key: sqlite.CompactRevKey}}); err != nil {
			return err
		}
	}
	return l.loadCompacted(ctx)
}

func (l *eventLog) loadCompacted(ctx context.Context) error {
	rev, err := l.d.GetCompactRevision(ctx)
	if err == nil {
		l.compacted.Store(rev)
	}
	return l.health.see(err)
}

// CompactRevision returns the revision before which versions have been removed.
func (l *eventLog) CompactRevision(context.Context) (int64, error) { return l.compacted.Load(), nil }

// CompactRevision returns the revision before which versions have been removed. With this method, the API server's
// storage accepts a Store as its compactor. The Store compacts itself.
func (s *Store) CompactRevision() int64 { return s.engine.log.compacted.Load() }

// Compact removes versions that were replaced before a revision, but never the last compactRetain ones.
func (l *eventLog) Compact(ctx context.Context, revision int64) (int64, error) {
	last := l.last()
	switch {
	case revision > last:
		return 0, kineserver.ErrFutureRev
	case revision <= l.compacted.Load():
		return 0, kineserver.ErrCompacted
	}
	return last, l.compactTo(ctx, min(revision, last-compactRetain))
}

// compactTo removes versions that were replaced before a revision, if there may be any, and frees their space. The
// revision must be lower than the last one, by which the store knows its current revision.
func (l *eventLog) compactTo(ctx context.Context, revision int64) (err error) {
	l.compacting.Lock()
	defer l.compacting.Unlock()
	from := l.compacted.Load()
	if revision <= from {
		return nil
	}
	l.idle.touch()
	// This comes first. Otherwise, a reader could get an incomplete list, because a read does not detect that rows are
	// missing.
	l.compacted.Store(revision)
	defer func() { err = errors.Join(l.health.see(err), l.loadCompacted(context.WithoutCancel(ctx))) }()
	for from < revision {
		if from, err = l.nextBatch(ctx, from, revision); err != nil {
			return fmt.Errorf("compact to %d: %w", revision, err)
		}
		if err := l.compactBatch(ctx, from); err != nil {
			return fmt.Errorf("compact to %d: %w", from, err)
		}
	}
	w := l.d.committer
	err = w.budget.shrink(ctx)
	l.compactions.Add(1)
	return errors.Join(err, w.db.Checkpoint(ctx))
}

// nextBatch returns up to which revision the batch of a compaction goes that comes after from. It has compactBatch rows, however
// far apart their revisions are: those of a restored store are 10^9 later, and those of one from a pod may be anywhere.
func (l *eventLog) nextBatch(ctx context.Context, from, revision int64) (next int64, err error) {
	db := l.d.committer.db
	ctx, cancel := withTimeout(ctx, db)
	defer cancel()
	err = db.Writer().QueryRowContext(ctx, db.Adapt(nextBatchSQL),
		from, revision, compactBatch-1, revision).Scan(&next)
	return next, err
}

// forgetHistory compacts a store that has just rejected a write. It reports whether the store may have free space now,
// which is whether more than after compactions have completed. Deletions keep the deleted values until a compaction, so
// that they fill a store at first. If a compaction is running, forgetHistory waits for it.
func (l *eventLog) forgetHistory(after int64) bool {
	revision := int64(0)
	if l.d.committer.budget.refused.Load() {
		revision = l.last() - 1
	}
	return l.compactTo(l.run, revision) == nil && l.compactions.Load() > after
}

func (l *eventLog) compactBatch(ctx context.Context, revision int64) error {
	w := l.d.committer
	ctx, cancel := withTimeout(ctx, w.db)
	defer cancel()
	var freed int64
	w.budget.unsure.Store(true)
	return inTx(ctx, w.db, func(tx *sql.Tx) (err error) {
		if freed, err = w.db.Compact(ctx, tx, revision); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, w.db.Adapt(sqlite.SetCompactedSQL), revision)
		return err
	}, func() {
		w.budget.unsure.Store(false)
		if freed > 0 {
			w.budget.set(w.budget.used.Load()-freed, w.budget.free.Load())
		}
	})
}
