// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const secretSize = 32

// Secret returns the 32 random bytes kept in dir under name, and makes them if
// the file is absent.
func Secret(dir, name string) ([]byte, error) {
	path := filepath.Join(dir, name)
	secret, err := os.ReadFile(path)
	if err == nil && len(secret) != secretSize {
		return nil, fmt.Errorf("load %s: it has %d bytes, want %d; restore it from a backup", path, len(secret), secretSize)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	secret = make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return secret, WriteFile(path, secret)
}
