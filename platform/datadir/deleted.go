// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// MoveAway moves the directory of a space out of [Spaces] in one atomic step. It needs no free space on the disk, which
// may be full. The ID of the store stays in Retained or Deleted until the object of the space is gone, because the
// platform recognizes its objects by the ID.
func MoveAway(dataDir, name string, retain bool) error {
	dir, to := Space(dataDir, name), Deleted(dataDir, name)
	if retain {
		to = Retained(dataDir, name)
	}
	_, err := os.Stat(dir)
	switch {
	case err == nil:
		if err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), makeWay(to, retain)); err == nil {
			err = os.Rename(dir, to)
		}
	case errors.Is(err, fs.ErrNotExist): // an earlier attempt has moved it
		err = nil
	}
	if err == nil && !retain {
		err = removeAllBut(to, storeIDFile)
	}
	if err != nil {
		return fmt.Errorf("delete the files of space %s: %w", name, err)
	}
	return nil
}

// makeWay removes a directory that is in the way. If it was retained, makeWay renames it, to a name with a dot, which
// no space can have.
func makeWay(dir string, retained bool) error {
	if !retained {
		return os.RemoveAll(dir)
	}
	err := os.Rename(dir, fmt.Sprintf("%s.%d", dir, time.Now().UnixNano()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeAllBut removes the contents of a directory, except for one file. The directory need not exist.
func removeAllBut(dir, file string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if err == nil && entry.Name() != file {
			err = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
	return err
}

// TakeBack moves the directory that a space of this name left, when it was deleted with the policy Retain, back to
// [Spaces].
func TakeBack(dataDir, name string) error {
	from, dir := Retained(dataDir, name), Space(dataDir, name)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o700)
	if err == nil {
		err = os.Rename(from, dir)
	}
	if err == nil { // the object of the space is a new one, which has never moved
		err = os.Remove(filepath.Join(dir, MovesFile))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back what space %s left: %w", name, err)
	}
	return nil
}
