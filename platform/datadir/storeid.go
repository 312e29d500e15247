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

// storeIDFile holds what identifies a store, in the directory of its space.
const storeIDFile = "store.id"

// StoreID identifies the store of a space among those of all platforms of a host. A space that has no identity yet gets one.
func StoreID(dataDir, space string) (string, error) {
	store, err := pki.Secret(Space(dataDir, space), storeIDFile)
	if err != nil {
		return "", fmt.Errorf("identify the store of space %s: %w", space, err)
	}
	return hex.EncodeToString(store[:8]), nil
}

// KnownStoreID is [StoreID] of a space that is there, retained, or being deleted; it fails with [fs.ErrNotExist] otherwise.
func KnownStoreID(dataDir, space string) (id string, err error) {
	for _, dir := range []string{Space(dataDir, space), Retained(dataDir, space), Deleted(dataDir, space)} {
		if id, err = StoreIDIn(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return id, err
}

// StoreIDIn is [StoreID] of what is in a directory; it fails with [fs.ErrNotExist] if it has no identity.
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
