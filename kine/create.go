// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// newSuffix names a store that is being made.
const newSuffix = ".new"

// create makes an empty store at path, which doesn't exist. It is made beside and moved there when it is whole and on
// disk, so that a file at path is always a store: killed in between, the next Open starts over.
// The caller holds the store's lock.
func create(ctx context.Context, path string) error {
	if err := vacantLog(path); err != nil {
		return err
	}
	tmp := path + newSuffix
	if err := removeAll(tmp); err != nil {
		return err
	}
	if err := createFile(tmp); err != nil {
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
	return syncDir(filepath.Dir(path))
}

// vacantLog refuses a path where a store's log is without the store: SQLite would take it for the new file's.
func vacantLog(path string) error {
	if sizeOf(path+"-wal") > 0 {
		return fmt.Errorf("%w: the file is gone, but its write-ahead log %s-wal is there; restore both, or remove the log", errDamaged, path)
	}
	return nil
}

// createTables takes no context: one that ends at the wrong moment makes SQLite leave the log unmerged without an error.
func createTables(path string) error {
	db := openOne(path, creatorParams)
	for _, stmt := range schema {
		if _, err := db.Exec(stmt); err != nil {
			return errors.Join(err, db.Close())
		}
	}
	// The last connection's end moves the log into the file, and syncs it.
	if err := db.Close(); err != nil {
		return err
	}
	if n := sizeOf(path + "-wal"); n > 0 {
		return fmt.Errorf("make %s: %d bytes stayed in its log", path, n)
	}
	return nil
}
