// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// restoreJump is added to the revision of a restored store. The store from which the snapshot was taken may have
	// continued, and no revision may have two meanings. The number is etcd's recommendation for --bump-revision: 1500
	// writes a second for a week.
	restoreJump = 1_000_000_000
	// maxRevision is a revision that no store reaches by itself.
	maxRevision = 1 << 62

	gapSQL = `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease)
		VALUES (?, ?, 0, 1, 0, 0, 0)`
)

// Restore creates a store at path from a snapshot, which it does not change. The store has the objects of the snapshot,
// a revision far ahead of it, and all earlier revisions compacted. So clients that watched or paged through the
// original store get an error and list again, instead of mixing two histories. ctx limits the whole call.
//
// It fails with ErrNotStore or ErrDamaged if the snapshot is not a sound store, with os.ErrExist if path exists, and
// with ErrInUse if somebody else creates a store there. In these cases, path is not changed.
func Restore(ctx context.Context, snapshot, path string) error {
	if err := restore(ctx, snapshot, path); err != nil {
		return fmt.Errorf("restore snapshot %s to %s: %w", snapshot, path, err)
	}
	return nil
}

func restore(ctx context.Context, snapshot, path string) (err error) {
	path, err = sqlite.Vacant(path)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	held, err := sqlite.Take(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if _, err := sqlite.Vacant(path); err != nil { // check again, now that nobody else can create one
		return err
	}
	if err := sqlite.VacantLog(path); err != nil {
		return err
	}
	tmp := path + sqlite.NewSuffix
	if err := sqlite.RemoveAll(tmp); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, sqlite.RemoveAll(tmp))
		}
	}()
	if err := copySnapshot(ctx, snapshot, tmp); err != nil {
		return err
	}
	if err := sqlite.CheckWhole(ctx, tmp, "integrity_check"); err != nil {
		return err
	}
	if err := advance(ctx, tmp, 0); err != nil {
		return err
	}
	return sqlite.Place(tmp, path)
}

// Replay appends rows to the snapshot of a store at path: do is called with a function that appends them, in the order of their revisions.
// It fails with ErrNotStore or ErrDamaged if the snapshot is not a sound store, or if the rows make it something that no store can be. After
// an error, the file must not be used.
func Replay(ctx context.Context, path string, do func(add func([]sqlite.Row) error) error) error {
	if n := sqlite.SizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("append to snapshot %s: %w: it has a log beside it", path, ErrNotStore)
	}
	if err := sqlite.CheckWhole(ctx, path, "quick_check"); err != nil {
		return fmt.Errorf("append to snapshot %s: %w", path, err)
	}
	if err := sqlite.Replay(ctx, path, do); err != nil {
		return err
	}
	db := sqlite.OpenOne(path, sqlite.AtRestParams)
	if err := errors.Join(sqlite.AsDamage(checkRows(ctx, db)), db.Close()); err != nil {
		return fmt.Errorf("append to snapshot %s: %w", path, err)
	}
	return nil
}

func copySnapshot(ctx context.Context, from, to string) (err error) {
	if n := sqlite.SizeOf(from + "-wal"); n > 0 {
		return fmt.Errorf("%w: it has a log beside it, so it is a store that is open or was killed; make a snapshot of that", ErrNotStore)
	}
	if err := sqlite.ExamineHeader(from); err != nil { // before copying a large file that is not a store
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := sqlite.CreateFile(to); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, &boundReader{ctx, in})
	return err
}

// boundReader reads until its context ends.
type boundReader struct {
	ctx context.Context
	r   io.Reader
}

func (b *boundReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// Advance increases the revision of the store at path as [Restore] does, and beyond that of another store which it
// replaces. Nobody may have opened the store.
func Advance(ctx context.Context, path string, past int64) error {
	if err := advance(ctx, path, past); err != nil {
		return fmt.Errorf("advance store %s: %w", path, err)
	}
	return nil
}

// advance increases the revision of the store at path, also beyond past, and marks everything before it as compacted.
func advance(ctx context.Context, path string, past int64) error {
	db := sqlite.OpenOne(path, sqlite.CreatorParams)
	err := advanceIn(ctx, db, past)
	if err == nil {
		err = sqlite.Checkpoint(context.WithoutCancel(ctx), db)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return sqlite.AsDamage(err)
	}
	if n := sqlite.SizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("%d bytes stayed in the log of %s", n, path)
	}
	return nil
}

func advanceIn(ctx context.Context, db *sql.DB, past int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after the commit
	var last int64
	if err := tx.QueryRowContext(ctx, "SELECT MAX(COALESCE((SELECT MAX(id) FROM kine), 0), COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'kine'), 0))").Scan(&last); err != nil {
		return err
	}
	compact := func() error {
		_, err := tx.ExecContext(ctx, sqlite.CompactSQL, last, last)
		return err
	}
	if err := jump(ctx, tx, last, past, compact, func(statement string) string { return statement }); err != nil {
		return err
	}
	return tx.Commit()
}

// afterRestore returns the revision of a store that is made of one whose last revision is known, and replaces another one.
func afterRestore(last, past int64) (int64, error) {
	if last < 0 || last > maxRevision {
		return 0, fmt.Errorf("%w: its revision is %d", ErrDamaged, last)
	}
	return max(last, min(past, maxRevision)) + restoreJump, nil
}

// jump increases the revision of a store, whose last one is known, also beyond past, and marks everything before it as compacted.
func jump(ctx context.Context, tx *sql.Tx, last, past int64, compact func() error, adapt func(string) string) error {
	next, err := afterRestore(last, past)
	if err != nil {
		return err
	}
	if err := compact(); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, adapt(gapSQL), next, fmt.Sprintf("gap-%d", next)); err != nil {
		return err
	}
	set, err := tx.ExecContext(ctx, adapt(sqlite.SetCompactedSQL), next-1)
	if err != nil {
		return err
	}
	if n, err := set.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%w: it doesn't say how far it was compacted", ErrNotStore), err)
	}
	return nil
}
