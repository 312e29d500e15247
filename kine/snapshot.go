// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/kine/sqlite"
)

// Snapshot writes a consistent copy of the store to path, while the store serves. The directory must exist, and path
// must not. The copy is written to path with the suffix ".new", checked, synced, and then renamed, so that a file at
// path is always complete. It is a store without free pages, and only its owner can read it; see Restore. Only one
// snapshot may be written to a path at a time.
func (s *Store) Snapshot(ctx context.Context, path string) error {
	b := s.engine.backend
	err := b.enter()
	if err == nil {
		err = s.engine.snapshot(ctx, path)
		b.calls.Done()
	}
	if err != nil {
		return fmt.Errorf("snapshot store %s to %s: %w", s.path, path, err)
	}
	return nil
}

// Replica is a copy of a store elsewhere, which follows what is written. It belongs to one open store at a time.
type Replica interface {
	// Opened is called when the store has been opened, before anybody else has it. Written may have been called before.
	Opened(s *Store)
	// Written is called after each commit, while others wait to write. It must not block.
	Written()
	// Compactable returns the revision up to which the store may be compacted, because the replica doesn't need the rows any more. A
	// store that is nearly full is compacted further. It must not block.
	Compactable() int64
	// Closing is called before the store is closed. The replica doesn't use the store any more when it returns.
	Closing()
}

// written returns what the committer calls after each commit.
func (e *engine) written(r Replica) func() {
	if r == nil {
		e.tidier.compactable = func() int64 { return maxRevision }
		return e.tidier.written
	}
	e.tidier.compactable = r.Compactable
	return func() {
		e.tidier.written()
		r.Written()
	}
}

// ErrRowsGone means that rows are not in the store any more, because it has been compacted, or was restored.
var ErrRowsGone = errors.New("rows were compacted")

// RowsAfter returns rows in the order of their revisions, from that after a revision until they have most bytes, but at least one, if there
// is one. It fails with ErrRowsGone if some of them are gone. It is for a file; ctx limits only the wait for a turn to read.
func (s *Store) RowsAfter(ctx context.Context, after int64, most int) ([]sqlite.Row, error) {
	b, log := s.engine.backend, s.engine.log
	err := b.enter()
	if err != nil {
		return nil, err
	}
	defer b.calls.Done()
	log.idle.touch()
	leave, err := log.enterRead(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	rows, err := sqlite.RowsAfter(context.WithoutCancel(ctx), s.engine.db.Readers().DB, after, most)
	if err != nil {
		return nil, log.health.see(err)
	}
	for i, r := range rows {
		if r.ID != after+1+int64(i) {
			return nil, fmt.Errorf("read store %s after revision %d: %w", s.path, after, ErrRowsGone)
		}
	}
	return rows, nil
}

// Last returns the revision of the last write.
func (s *Store) Last() int64 { return s.engine.log.last() }

func (e *engine) snapshot(ctx context.Context, path string) error {
	// Closing the store also ends the snapshot.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.backend.closing, cancel)()
	return writeCopy(path, func(tmp string) error {
		err := e.db.Copy(ctx, tmp)
		if errors.Is(err, ErrDamaged) {
			_ = e.health.see(err) // the store itself may be damaged, too
		}
		return err
	}, func(tmp string) error { return sqlite.CheckWhole(ctx, tmp, "quick_check") })
}

// writeCopy has a copy of a store written to a temporary file, checked, and moved to path.
func writeCopy(path string, write, check func(tmp string) error) (err error) {
	path, err = sqlite.Vacant(path)
	if err != nil {
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
	if err := sqlite.CreateFile(tmp); err != nil { // SQLite would create a file that others can read
		return err
	}
	if err := write(tmp); err != nil {
		return err
	}
	if err := check(tmp); err != nil {
		return fmt.Errorf("check the copy: %w", err)
	}
	return sqlite.Place(tmp, path)
}
