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
		err = s.engine.snapshot(ctx, s.path, path)
		b.calls.Done()
	}
	if err != nil {
		return fmt.Errorf("snapshot store %s to %s: %w", s.path, path, err)
	}
	return nil
}

func (e *engine) snapshot(ctx context.Context, store, path string) (err error) {
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
	// Closing the store also ends the snapshot.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.backend.closing, cancel)()
	db := sqlite.OpenOne(store, sqlite.ReaderParams)
	defer db.Close()
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", tmp); err != nil {
		if damage := sqlite.AsDamage(err); errors.Is(damage, ErrDamaged) {
			_ = e.health.see(damage) // the store itself may be damaged, too
		}
		return err
	}
	if err := sqlite.CheckWhole(ctx, tmp, "quick_check"); err != nil {
		return fmt.Errorf("check the copy: %w", err)
	}
	return sqlite.Place(tmp, path)
}
