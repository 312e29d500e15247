// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package datadir knows where things are in the data directory of a platform, and moves the directories of spaces that are
// deleted or come back.
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

// HostName is the name of the kubeconfig of an embedded host among those of spaces. No space has it.
const HostName = "host"

const kubeconfigSuffix = ".kubeconfig"

// Kubeconfig is where the kubeconfig of a space, or of the host, is in a data directory.
func Kubeconfig(dataDir, name string) string {
	return filepath.Join(dataDir, name+kubeconfigSuffix)
}

// Kubeconfigs lists the names of the spaces that have a kubeconfig in a data directory, and "host" if the host has one.
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

// Lock makes a data directory ours until the file is closed.
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

// Dedicated holds the log and the socket of a dedicated space's process.
func Dedicated(dataDir, space string) string { return filepath.Join(dataDir, "dedicated", space) }

// Spaces holds a directory for each space: its store and its keys.
func Spaces(dataDir string) string { return filepath.Join(dataDir, "spaces") }

// Space is the directory of a space.
func Space(dataDir, space string) string { return filepath.Join(Spaces(dataDir), space) }

// Retained is the directory of a space that was deleted with Retain.
func Retained(dataDir, space string) string { return filepath.Join(dataDir, "retained", space) }

// Deleted is the directory of a space that is deleted, of which only what identifies its store is left until its object is
// gone.
func Deleted(dataDir, space string) string { return filepath.Join(dataDir, "deleted", space) }

// Host holds the store and the keys of an embedded host.
func Host(dataDir string) string { return filepath.Join(dataDir, "host") }

// Scratch is for files that are lost in a crash.
func Scratch(dataDir string) string { return filepath.Join(dataDir, "tmp") }

// PortCA is the name of the CA of the TLS listener's certificate.
const PortCA = "berth"

// PortKeys is the directory of the keys of [PortCA].
func PortKeys(dataDir string) string { return filepath.Join(dataDir, "pki") }

// SyncDir has what was renamed and removed in a directory be on disk.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
