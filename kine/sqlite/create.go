// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/internal/fsutil"
)

// NewSuffix names a store that is being made.
const NewSuffix = ".new"

// Create makes an empty store at path, which doesn't exist. It is made beside and moved there when it is whole and on
// disk, so that a file at path is always a store: killed in between, the next Open starts over.
// The caller holds the store's lock.
func Create(ctx context.Context, path string) error {
	if err := VacantLog(path); err != nil {
		return err
	}
	tmp := path + NewSuffix
	if err := RemoveAll(tmp); err != nil {
		return err
	}
	if err := CreateFile(tmp); err != nil {
		return err
	}
	if err := createTables(tmp); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(path))
}

// VacantLog refuses a path where a store's log is without the store: SQLite would take it for the new file's.
func VacantLog(path string) error {
	if SizeOf(path+"-wal") > 0 {
		return fmt.Errorf("%w: the file is missing, but its write-ahead log %s-wal exists; restore both, or remove the log", ErrDamaged, path)
	}
	return nil
}

// createTables takes no context: one that ends at the wrong moment makes SQLite leave the log unmerged without an error.
func createTables(path string) error {
	db := OpenOne(path, CreatorParams)
	for _, stmt := range Schema {
		if _, err := db.Exec(stmt); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	// The last connection's end moves the log into the file, and syncs it.
	if err := db.Close(); err != nil {
		return err
	}
	if n := SizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("make %s: %d bytes stayed in its log", path, n)
	}
	return nil
}
