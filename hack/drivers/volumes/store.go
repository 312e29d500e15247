// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// store keeps volumes and snapshots as directories, by their names. A copy
// appears under its name when it is whole.
type store struct{ volumes, snapshots, partial string }

var (
	errNotFound = errors.New("there is none of that name")
	errName     = errors.New("not a name of a volume or snapshot")
	plainName   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

func openStore(root string) (*store, error) {
	s := &store{filepath.Join(root, "volumes"), filepath.Join(root, "snapshots"), filepath.Join(root, "partial")}
	if err := os.RemoveAll(s.partial); err != nil {
		return nil, fmt.Errorf("open %s: %w", root, err)
	}
	for _, dir := range []string{s.volumes, s.snapshots, s.partial} {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pods enter it
			return nil, fmt.Errorf("open %s: %w", root, err)
		}
	}
	return s, nil
}

// path is where a volume or snapshot is, and an error unless it is there.
func path(dir, name string) (string, error) {
	if !plainName.MatchString(name) {
		return "", errName
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", errNotFound
	} else if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return path, nil
}

// create makes a directory, of what is in another one if that is not empty; one
// that is there already stays as it is.
func (s *store) create(dir, name, from string) error {
	if _, err := path(dir, name); !errors.Is(err, errNotFound) {
		return err
	}
	partial, err := os.MkdirTemp(s.partial, name+"-")
	if err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	// Whichever user a container runs as.
	if err := os.Chmod(partial, 0o777); err != nil { //nolint:gosec // as it says
		return fmt.Errorf("create %s: %w", name, err)
	}
	if from != "" {
		if err := os.CopyFS(partial, os.DirFS(from)); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	if err := os.Rename(partial, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("create %s: %w", name, err)
	}
	return nil
}

// size is what the files of a directory take, in bytes, rounded up to a mebibyte.
func size(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	const unit = 1 << 20
	return (bytes + unit) / unit * unit, err
}

// remove removes a volume or snapshot; that there is none is no error.
func remove(dir, name string) error {
	at, err := path(dir, name)
	if errors.Is(err, errNotFound) || errors.Is(err, errName) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(at)
}
