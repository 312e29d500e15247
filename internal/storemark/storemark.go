// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storemark is the file in the directory of a space whose store is in a database server. It says so, and has what is
// asked about the space while it sleeps, so that a sleeping space has no connection.
//
// vcluster writes it when the space starts and stops. The shard and snapshots read it.
package storemark

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/internal/fsutil"
)

// file is the name of the file.
const file = "store.server"

// Mark is what the file has.
type Mark struct {
	// Database names the database, without a password.
	Database string `json:"database"`
	// TenantAccesses are the TenantAccess objects as they were stored when the space last stopped in order.
	TenantAccesses [][]byte `json:"tenantAccesses,omitempty"`
}

// Path returns the path of the file in the directory of a space.
func Path(dir string) string { return filepath.Join(dir, file) }

// Exists reports whether the store of the space in dir is in a database server.
func Exists(dir string) bool {
	_, err := os.Lstat(Path(dir))
	return !errors.Is(err, fs.ErrNotExist)
}

// Read returns the mark of the space in dir. It fails with [fs.ErrNotExist] if there is none.
func Read(dir string) (Mark, error) {
	var mark Mark
	data, err := os.ReadFile(Path(dir))
	if err == nil {
		err = json.Unmarshal(data, &mark)
	}
	return mark, err
}

// Write replaces the mark of the space in dir. Its time of modification is that of the last use of the store.
func Write(dir string, mark Mark) error {
	data, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	return fsutil.Replace(Path(dir), func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Remove removes the mark of the space in dir, if there is one.
func Remove(dir string) error {
	if err := os.Remove(Path(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
