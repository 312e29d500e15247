// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// authorityFiles are the names of the files of an authority, in the order in which another process may replace them: a key without its
// certificate is ignored, whereas a certificate without its key is an error.
func authorityFiles() []string { return []string{"ca-next.key", "ca.key", "ca.crt", revokedFile} }

// Files returns the files of the authority in dir, by name, for [Install] in another directory. There are none if there is no authority.
func Files(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range authorityFiles() {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read certificate authority: %w", err)
		}
		files[name] = data
	}
	if files["ca.crt"] == nil {
		return nil, nil // a crash may have left a key
	}
	return files, nil
}

// Install makes the authority in dir that of files, which [Files] returned of another one. A [CA] that is open on dir takes that over when
// it renews, and at [CA.Reload]. Files that are not an authority are refused, and change nothing. After a crash in between, Install has to
// be called again before the authority is opened.
func Install(dir string, files map[string][]byte) error {
	if err := makeDir(dir); err != nil {
		return err
	}
	if err := checkAuthority(dir, files); err != nil {
		return err
	}
	unlock, err := lockKeys(dir)
	if err != nil {
		return fmt.Errorf("install certificate authority: %w", err)
	}
	defer unlock()
	for _, name := range authorityFiles() {
		path := filepath.Join(dir, name)
		data, there := files[name]
		if there {
			err = WriteFile(path, data)
		} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("install certificate authority: %w", err)
		}
	}
	return nil
}

// checkAuthority fails if files are not those of an authority. It needs a directory for a copy of them.
func checkAuthority(dir string, files map[string][]byte) error {
	scratch, err := os.MkdirTemp(dir, "check-*")
	if err != nil {
		return fmt.Errorf("check certificate authority: %w", err)
	}
	defer os.RemoveAll(scratch)
	for _, name := range authorityFiles() {
		if data, there := files[name]; there {
			if err := os.WriteFile(filepath.Join(scratch, name), data, 0o600); err != nil {
				return fmt.Errorf("check certificate authority: %w", err)
			}
		}
	}
	if _, err := loadAuthority(scratch); err != nil {
		return fmt.Errorf("check certificate authority: %w", err)
	}
	return nil
}

// Reload reads the files again, which another process may have changed.
func (ca *CA) Reload() error {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return ca.load()
}
