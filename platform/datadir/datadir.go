// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir is the layout of a platform's data directory. It also moves the directories of spaces when they are
// deleted or restored.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/fielderror"
)

// HostName is the name of an embedded host's kubeconfig, beside those of spaces. No space can have this name.
const HostName = "host"

const kubeconfigSuffix = ".kubeconfig"

// Kubeconfig returns the path of the kubeconfig of a space, or of the host.
func Kubeconfig(dataDir, name string) string {
	return filepath.Join(dataDir, name+kubeconfigSuffix)
}

// Kubeconfigs returns the names of the spaces that have a kubeconfig in a data directory, and "host" if the host has
// one.
func Kubeconfigs(dataDir string) (names []string, err error) {
	entries, err := os.ReadDir(dataDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list kubeconfigs: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), kubeconfigSuffix); ok && e.Type().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}

// Lock locks a data directory until the returned file is closed.
func Lock(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fielderror.New("data-dir", dir, "it is in use by another berth; stop it or choose another directory")
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return file, nil
}

// Dedicated returns the directory of the log and the socket of a dedicated space's process.
func Dedicated(dataDir, space string) string { return filepath.Join(dataDir, "dedicated", space) }

// Spaces returns the directory that contains a directory for each space, with its store and its keys.
func Spaces(dataDir string) string { return filepath.Join(dataDir, "spaces") }

// Space returns the directory of a space.
func Space(dataDir, space string) string { return filepath.Join(Spaces(dataDir), space) }

// Retained returns the directory of a space that was deleted with the policy Retain.
func Retained(dataDir, space string) string { return filepath.Join(dataDir, "retained", space) }

// Deleted returns the directory of a space that is being deleted. Until the space's object is gone, it contains the ID
// of the store and nothing else.
func Deleted(dataDir, space string) string { return filepath.Join(dataDir, "deleted", space) }

// Received returns the directory of what other shards send of spaces that move here.
func Received(dataDir string) string { return filepath.Join(dataDir, "received") }

// Host returns the directory of the store and the keys of an embedded host.
func Host(dataDir string) string { return filepath.Join(dataDir, "host") }

// Use returns the path of the records of what tenants use.
func Use(dataDir string) string { return filepath.Join(dataDir, "usage.db") }

// Scratch returns the directory of temporary files, which may be lost in a crash.
func Scratch(dataDir string) string { return filepath.Join(dataDir, "tmp") }

// ReplicaScratch is Scratch for copies of stores that become replicas.
func ReplicaScratch(dataDir string) string { return filepath.Join(dataDir, "tmp-replicas") }

// PortCA is the name of the CA of the TLS listener's certificate.
const PortCA = "berth"

// EndpointCA returns the path of the CA of the API endpoint's certificate, if that does not come from [PortCA].
func EndpointCA(dataDir string) string { return filepath.Join(PortKeys(dataDir), "endpoint-ca.crt") }

// PortKeys returns the directory of the keys of [PortCA].
func PortKeys(dataDir string) string { return filepath.Join(dataDir, "pki") }
