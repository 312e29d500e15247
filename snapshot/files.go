// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"io"
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
