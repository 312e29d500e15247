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
	"time"

	"github.com/berth-dev/berth/internal/fsutil"
)

// directory is a bucket of files that only their owner can read.
type directory string

const (
	// newFile is what the name of a file begins with that isn't complete.
	newFile = ".new-"
	// abandoned is when such a file, which is written within seconds, will never be complete.
	abandoned = 24 * time.Hour
)

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

func (d directory) putNew(_ context.Context, key string, data io.Reader, _ int64) error {
	path := filepath.Join(string(d), filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), newFile+"*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // which has another name, too, if all went well
	_, err = io.Copy(file, data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Link(file.Name(), path); errors.Is(err, fs.ErrExist) { // unlike a renaming, it replaces nothing
		return errThere
	} else if err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(path))
}

func (d directory) get(_ context.Context, key string) (io.ReadCloser, error) {
	file, err := os.Open(filepath.Join(string(d), filepath.FromSlash(key)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNotThere
	}
	return file, err
}

func (d directory) names(_ context.Context, prefix string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(string(d), prefix))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (d directory) list(ctx context.Context, prefix string) (objects []object, err error) {
	spaces := []string{prefix}
	if prefix == "" {
		if spaces, err = d.names(ctx, ""); err != nil {
			return nil, err
		}
	}
	for _, space := range spaces {
		entries, err := os.ReadDir(filepath.Join(string(d), space))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err == nil && strings.HasPrefix(e.Name(), newFile) && time.Since(info.ModTime()) > abandoned {
				_ = os.Remove(filepath.Join(string(d), space, e.Name())) // a process has ended before it was complete
			}
			if err != nil || !info.Mode().IsRegular() || strings.HasPrefix(e.Name(), ".") {
				continue // deleted, or not a snapshot
			}
			objects = append(objects, object{key: space + "/" + e.Name(), size: info.Size(), modified: info.ModTime()})
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
