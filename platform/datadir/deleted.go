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

// MoveAway takes the directory of a space from where spaces are, in one step, so that a crash leaves it there or not. It needs no
// space on the disk, which may be full. What identifies the store stays in Retained or Deleted until the object of the
// space is gone: by it the platform knows that the object is its own.
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
	case errors.Is(err, fs.ErrNotExist): // a try before this one has moved it
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

// makeWay removes what is in the way of a directory. An older one that was retained gets another name: no space has one with a dot.
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

// removeAllBut removes what is in a directory, if there is one, except for one file.
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

// TakeBack gives a space that is created the directory that one of its name left when it was deleted with Retain.
func TakeBack(dataDir, name string) error {
	from, dir := Retained(dataDir, name), Space(dataDir, name)
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	err := os.MkdirAll(filepath.Dir(dir), 0o700)
	if err == nil {
		err = os.Rename(from, dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take back what space %s left: %w", name, err)
	}
	return nil
}
