// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// vacant returns the absolute path of a file that is not there.
func vacant(path string) (string, error) {
	if path == "" || strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q: one is needed, without zero bytes", path)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s: %w; choose another path, or remove it", path, os.ErrExist)
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return path, nil
}

// checkWhole checks a store that nobody writes to, by one of SQLite's checks.
func checkWhole(ctx context.Context, path, check string) error {
	if err := examineHeader(path); err != nil {
		return err
	}
	db := openOne(path, examineAtRestParams)
	defer db.Close()
	if err := examineTable(ctx, db); err != nil {
		return err
	}
	return checkPages(ctx, db, check)
}

// createFile makes an empty file for its owner alone.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// place moves a file to a path where there is none, and both to disk.
func place(tmp, path string) error {
	f, err := os.OpenFile(tmp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(tmp, path); err != nil { // unlike a renaming, it replaces nothing
		return err
	}
	if err := os.Remove(tmp); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// removeAll removes a database and what SQLite keeps beside it, as far as they are there.
func removeAll(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
