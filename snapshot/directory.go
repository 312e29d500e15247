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
)

// directory is a bucket of files that only their owner can read.
type directory string

func (d directory) put(_ context.Context, key string, data io.Reader, _ int64) (err error) {
	path := filepath.Join(string(d), filepath.FromSlash(key))
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".upload-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = io.Copy(tmp, data)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
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
