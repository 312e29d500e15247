// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"
	"io"
	"os"

	"github.com/berth-dev/berth/internal/fsutil"
)

// WriteFile writes a file of mode 0600 that exists completely or not at all, even after a power loss.
func WriteFile(path string, data []byte) error {
	return fsutil.Replace(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// makeDir makes a directory that only its owner may enter.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	return nil
}
