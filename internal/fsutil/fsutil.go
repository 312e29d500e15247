// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fsutil makes changes of files durable. It is used where data must survive a power loss.
package fsutil

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace writes a file of mode 0600, in place of one that may exist. At each moment, also after a power loss, the file
// is the old one or the complete new one. The directory must exist.
func Replace(path string, write func(io.Writer) error) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	err = write(tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes the names of files in a directory durable, after files were created, renamed, or removed.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
