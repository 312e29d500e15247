// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/internal/fsutil"
)

// directory is a bucket of files that only their owner can read.
type directory string

func (d directory) put(_ context.Context, key string, data io.Reader, _ int64) error {
	path := filepath.Join(string(d), filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return fsutil.Replace(path, func(w io.Writer) error {
		_, err := io.Copy(w, data)
		return err
	})
}

func (d directory) get(_ context.Context, key string) (io.ReadCloser, error) {
	file, err := os.Open(filepath.Join(string(d), filepath.FromSlash(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotThere
	}
	return file, err
}

func (d directory) list(_ context.Context, prefix string) ([]object, error) {
	spaces := []string{prefix}
	if prefix == "" {
		entries, err := os.ReadDir(string(d))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		spaces = nil
		for _, e := range entries {
			if e.IsDir() {
				spaces = append(spaces, e.Name())
			}
		}
	}
	var objects []object
	for _, space := range spaces {
		entries, err := os.ReadDir(filepath.Join(string(d), space))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") {
				continue // deleted, or not a snapshot
			}
			objects = append(objects, object{key: space + "/" + e.Name(), size: info.Size()})
		}
	}
	return objects, nil
}

func (d directory) remove(_ context.Context, key string) error {
	err := os.Remove(filepath.Join(string(d), filepath.FromSlash(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return errNotThere
	}
	return err
}
