// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spacefiles reads and writes what the directory of a space has beside the store: the keys of the space, and the ID of its store. A
// space with a store in a database server has a copy of these files there, so that another shard can serve
// the space.
//
// vcluster saves them. The manager makes directories of them.
package spacefiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/internal/fsutil"
)

// ProcessDir is where a copy that a shard sends to another one has the files by which the platform runs the space's process. The directory of
// a space has none of this name.
const ProcessDir = "dedicated"

const (
	storeFile = "store.db"
	cacheFile = "cache.db"
	// epochFile has the epoch in which the directory was last that of the process that had the store. It is older than the files in the
	// database if those have a later one.
	epochFile = "files.epoch"
	// maxSize is how many bytes a file may have to be read.
	maxSize = 64 << 20
)

// Belongs reports whether a file of a space's directory belongs to the space. The store doesn't, nor the cache of one in a server,
// and locks are of a process.
func Belongs(name string) bool {
	return name != ProcessDir && !strings.HasPrefix(name, ProcessDir+"/") && !strings.HasPrefix(name, storeFile) && !strings.HasPrefix(name, cacheFile) && !strings.HasSuffix(name, ".lock")
}

// isSaved reports whether a file is one that a database has. It has none that say how the platform runs the space, which somebody who can
// write to the database could change.
func isSaved(name string) bool {
	return Belongs(name) && !slices.Contains([]string{epochFile, "applied.json", "store-location.json", "store-received", "pods.address"}, name)
}

// Read returns the contents of the files in the directory of a space, by their paths in it, with slashes.
func Read(dir string) (map[string][]byte, error) {
	data := map[string][]byte{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was replaced
		}
		if err != nil || !entry.Type().IsRegular() || !isSaved(name) || strings.HasPrefix(filepath.Base(name), ".") { // one that is being written
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Size() > maxSize {
			return fmt.Errorf("%s has %d bytes", name, info.Size())
		}
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		data[name] = content
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the files of a space: %w", err)
	}
	return data, nil
}

// Write makes a directory, which must not exist, of files that are of an epoch. All of it is on disk when Write returns.
func Write(dir string, data map[string][]byte, epoch int64) error {
	dirs := map[string]bool{filepath.Dir(dir): true}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range data {
		if !fs.ValidPath(name) || !filepath.IsLocal(filepath.FromSlash(name)) || !isSaved(name) {
			return fmt.Errorf("the file %q does not belong into the directory of a space", name)
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := replace(path, content); err != nil {
			return err
		}
		for at := filepath.Dir(path); len(at) > len(dir); at = filepath.Dir(at) {
			dirs[filepath.Dir(at)] = true
		}
	}
	if err := WriteEpoch(dir, epoch); err != nil {
		return err
	}
	for at := range dirs {
		if err := fsutil.SyncDir(at); err != nil {
			return err
		}
	}
	return nil
}

func replace(path string, content []byte) error {
	return fsutil.Replace(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// Epoch returns the epoch of a directory; 0 if it has none.
func Epoch(dir string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(dir, epochFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	epoch, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Join(dir, epochFile), err)
	}
	return epoch, nil
}

// WriteEpoch writes the epoch of a directory.
func WriteEpoch(dir string, epoch int64) error {
	return replace(filepath.Join(dir, epochFile), strconv.AppendInt(nil, epoch, 10))
}
