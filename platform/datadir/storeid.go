// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/vcluster/pki"
)

// storeIDFile is the file with the ID of a store, in the directory of its space.
const storeIDFile = "store.id"

// StoreID returns the ID of a space's store, which is unique among all platforms of a host. It creates one if there is
// none.
func StoreID(dataDir, space string) (string, error) {
	store, err := pki.Secret(Space(dataDir, space), storeIDFile)
	if err != nil {
		return "", fmt.Errorf("identify the store of space %s: %w", space, err)
	}
	return hex.EncodeToString(store[:8]), nil
}

// KnownStoreID returns the ID of a space that exists, is retained, or is being deleted. Otherwise, it fails with
// [fs.ErrNotExist].
func KnownStoreID(dataDir, space string) (id string, err error) {
	for _, dir := range []string{Space(dataDir, space), Retained(dataDir, space), Deleted(dataDir, space)} {
		if id, err = StoreIDIn(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return id, err
}

// StoreIDIn returns the ID of the store in a directory. It fails with [fs.ErrNotExist] if there is none.
func StoreIDIn(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, storeIDFile)); err != nil {
		return "", err
	}
	store, err := pki.Secret(dir, storeIDFile)
	if err != nil {
		return "", fmt.Errorf("identify the store in %s: %w", dir, err)
	}
	return hex.EncodeToString(store[:8]), nil
}
