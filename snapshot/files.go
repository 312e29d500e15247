// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// copyFile copies a file to a new file with mode 0600, and syncs it to disk.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// copyAtRest copies a store that nobody has opened. It fails with errMoved if somebody opened it in the meantime,
// because the copy is then not consistent.
func copyAtRest(from, to string) error {
	before, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := copyFile(from, to); err != nil {
		return err
	}
	after, err := os.Stat(from)
	if err == nil && (exists(from+"-wal") || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime())) {
		err = errMoved
	}
	if err != nil {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
