// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/internal/fsutil"
)

// receivedFile is in the directory of a space whose store came from a pod that somebody may have taken over. While it is there,
// the store is not opened, and snapshots of it say where it is from.
const receivedFile = "store-received"

// MarkReceived notes that the store in dir, which may come later, is from a pod.
func MarkReceived(dir string) error {
	if err := errors.Join(os.WriteFile(filepath.Join(dir, receivedFile), nil, 0o600), fsutil.SyncDir(dir)); err != nil {
		return fmt.Errorf("note that the store in %s comes from a pod: %w", dir, err)
	}
	return nil
}

// IsReceived reports whether the store in dir is from a pod.
func IsReceived(dir string) bool { return exists(filepath.Join(dir, receivedFile)) }

// UnmarkReceived notes that the store in dir may be opened, or is another one.
func UnmarkReceived(dir string) error {
	err := os.Remove(filepath.Join(dir, receivedFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err = errors.Join(err, fsutil.SyncDir(dir)); err != nil {
		return fmt.Errorf("note that the store in %s may be opened: %w", dir, err)
	}
	return nil
}
