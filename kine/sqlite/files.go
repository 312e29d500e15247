// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/internal/fsutil"
)

// Vacant returns the absolute path of a file that is not there.
func Vacant(path string) (string, error) {
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

// CheckWhole checks a store that nobody writes to, by one of SQLite's checks.
func CheckWhole(ctx context.Context, path, check string) error {
	if err := ExamineHeader(path); err != nil {
		return err
	}
	db := OpenOne(path, AtRestParams)
	defer db.Close()
	if err := examineTable(ctx, db); err != nil {
		return err
	}
	return checkPages(ctx, db, check)
}

// CreateFile makes an empty file for its owner alone.
func CreateFile(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// Place moves a file to a path where there is none, and both to disk.
func Place(tmp, path string) error {
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
	return fsutil.SyncDir(filepath.Dir(path))
}

// RemoveAll removes a database and what SQLite keeps beside it, as far as they are there.
func RemoveAll(path string) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
