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
	// restoreJump is by how much a restored store's revision is ahead of its snapshot's, so that no revision stands for
	// two things: the store that the snapshot was made of may have gone on. It is what etcd recommends for its
	// --bump-revision, 1500 writes a second for a week.
	restoreJump = 1_000_000_000
	// maxRevision is one that no store gets to by itself.
	maxRevision = 1 << 62

	gapSQL = `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease)
		VALUES (?, 'gap-' || ?, 0, 1, 0, 0, 0)`
)

// Restore makes a store at path of a snapshot, which it leaves as it is. The objects are those of the snapshot. The
// revision is far ahead of the snapshot's, and all up to there is compacted: clients that watch or page through the store
// it once was are told so, and list anew, instead of taking what is here for what they know. ctx bounds it.
//
// It fails with ErrNotStore or ErrDamaged if the snapshot is no sound store, with os.ErrExist if there is something at
// path, and with ErrInUse if somebody makes a store there; path is then as it was.
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
	if _, err := sqlite.Vacant(path); err != nil { // now that nobody else makes one
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

func copySnapshot(ctx context.Context, from, to string) (err error) {
	if n := sqlite.SizeOf(from + "-wal"); n > 0 {
		return fmt.Errorf("%w: it has a log beside it, so it is a store that is open or was killed; make a snapshot of that", ErrNotStore)
	}
	if err := sqlite.ExamineHeader(from); err != nil { // before something large that is none is copied
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

// Advance makes the revision of the store at path, which nobody has open, jump as [Restore] does, and past one that
// another store got to, whose place it is to take.
func Advance(ctx context.Context, path string, past int64) error {
	if err := advance(ctx, path, past); err != nil {
		return fmt.Errorf("advance store %s: %w", path, err)
	}
	return nil
}

// advance makes the revision of the store at path jump, past another one too, and everything before compacted.
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
	defer func() { _ = tx.Rollback() }() // nothing, after the commit
	var last int64
	if err := tx.QueryRowContext(ctx, "SELECT MAX(COALESCE((SELECT MAX(id) FROM kine), 0), COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'kine'), 0))").Scan(&last); err != nil {
		return err
	}
	if last < 0 || last > maxRevision {
		return fmt.Errorf("%w: its revision is %d", ErrDamaged, last)
	}
	next := max(last, min(past, maxRevision)) + restoreJump
	if _, err := tx.ExecContext(ctx, sqlite.CompactSQL, last, last); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, gapSQL, next, next); err != nil {
		return err
	}
	set, err := tx.ExecContext(ctx, sqlite.SetCompactedSQL, next-1)
	if err != nil {
		return err
	}
	if n, err := set.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%w: it doesn't say how far it was compacted", ErrNotStore), err)
	}
	return tx.Commit()
}
