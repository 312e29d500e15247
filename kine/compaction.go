// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	compactRetain = 1000 // revisions that no client's compaction forgets
	compactBatch  = 1000 // revisions compacted in a transaction: writers wait for it
)

// Start makes the log ready. It does what kine's does, but for a fault of old that our files never had.
func (l *eventLog) Start(ctx context.Context) error {
	var rows int
	if err := l.d.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM kine WHERE name = 'compact_rev_key'").Scan(&rows); err != nil {
		return l.health.see(err)
	}
	if rows == 0 { // it holds how far the store was compacted
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

// CompactRevision is the one before which versions are forgotten.
func (l *eventLog) CompactRevision(context.Context) (int64, error) { return l.compacted.Load(), nil }

// CompactRevision is the revision before which versions are forgotten. It makes a Store what the API server's storage
// takes for its compactor, though it needs none: the Store compacts itself.
func (s *Store) CompactRevision() int64 { return s.engine.log.compacted.Load() }

// Compact forgets versions that were superseded before a revision, but never the last compactRetain.
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

// compactTo forgets versions that were superseded before a revision, if there may be any, and gives their space back. The
// revision has to be below the last, which tells the store how far it is.
func (l *eventLog) compactTo(ctx context.Context, revision int64) (err error) {
	l.compacting.Lock()
	defer l.compacting.Unlock()
	from := l.compacted.Load()
	if revision <= from {
		return nil
	}
	l.idle.touch()
	// First, so that nobody is served what lacks some of it: a read that finds nothing doesn't tell how far it was
	// compacted.
	l.compacted.Store(revision)
	defer func() { err = errors.Join(l.health.see(err), l.loadCompacted(context.WithoutCancel(ctx))) }()
	for from < revision {
		from = min(from+compactBatch, revision)
		if err := l.compactBatch(ctx, from); err != nil {
			return fmt.Errorf("compact to %d: %w", from, err)
		}
	}
	w := l.d.committer
	err = vacuum(ctx, w.db, w.budget)
	l.compactions.Add(1)
	return errors.Join(err, sqlite.Checkpoint(ctx, w.db))
}

// forgetHistory compacts a store that has just refused a write, and says whether the store may have space since: whether any
// compaction has ended after that many. Deletions keep what they deleted until then, so that they fill a store first. A
// compaction that is under way is waited for.
func (l *eventLog) forgetHistory(after int64) bool {
	revision := int64(0)
	if l.d.committer.budget.refused.Load() {
		revision = l.last() - 1
	}
	return l.compactTo(l.run, revision) == nil && l.compactions.Load() > after
}

func (l *eventLog) compactBatch(ctx context.Context, revision int64) error {
	tx, err := l.d.committer.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, stmt := range []struct {
		sql  string
		args []any
	}{{sqlite.CompactSQL, []any{revision, revision}}, {sqlite.SetCompactedSQL, []any{revision}}} {
		if _, err := tx.ExecContext(ctx, stmt.sql, stmt.args...); err != nil {
			_ = tx.Rollback() // the first error is the one to tell
			return err
		}
	}
	return tx.Commit()
}
