// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"errors"
	"path/filepath"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ErrNoKeys is returned for a space that never started, and for a host that is not embedded.
var ErrNoKeys = errors.New("it has no keys here; start it first")

// OpenClientCA opens the CA that issues the client certificates of a space, or of the host. It fails with ErrNoKeys if
// there is none.
func OpenClientCA(dataDir, name string) (*pki.CA, error) {
	keys := ClientKeys(dataDir, name)
	if !pki.Exists(keys) {
		return nil, ErrNoKeys
	}
	return pki.OpenCA(keys, pki.SpaceCA(name))
}

// ClientKeys returns the directory of the keys of that CA.
func ClientKeys(dataDir, name string) string {
	if name == datadir.HostName {
		return filepath.Join(datadir.Host(dataDir), "pki")
	}
	return filepath.Join(datadir.Space(dataDir, name), "pki")
}
