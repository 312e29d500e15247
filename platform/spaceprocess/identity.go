// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/vcluster/credentials"
)

// identityFiles are the files that identify a space, beside the keys in the directory pki. How often the space has moved between shards is only
// sent if the process saves its files in a database.
func identityFiles() []string {
	return []string{"node.key", "store.id", datadir.MovesFile, PodsAddressFile}
}

// PodsAddressFile is sent with the keys to a process on another machine. It contains the IP at which the space's pods
// reach the platform.
const PodsAddressFile = "pods.address"

func isIdentity(path string) bool {
	name, inPKI := strings.CutPrefix(path, "pki/")
	return inPKI && name != "" && filepath.IsLocal(name) && !strings.ContainsAny(name, `/\`) || slices.Contains(identityFiles(), path)
}

// ReadIdentity reads the keys in the directory of a space.
func ReadIdentity(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	paths := identityFiles()
	entries, err := os.ReadDir(filepath.Join(dir, "pki"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the keys of a space: %w", err)
	}
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), ".") && e.Name() != credentials.ServingCAFile {
			paths = append(paths, "pki/"+e.Name())
		}
	}
	for _, path := range paths {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(path)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the keys of a space: %w", err)
		}
		files[path] = data
	}
	return files, nil
}
