// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// HostName is the name of the kubeconfig of an embedded host among those of spaces. No space has it.
const HostName = "host"

const kubeconfigSuffix = ".kubeconfig"

// KubeconfigPath is where the kubeconfig of a space, or of the host, is in a data directory.
func KubeconfigPath(dataDir, name string) string {
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

// lockDataDir makes a data directory ours until the file is closed.
func lockDataDir(dir string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fieldError("data-dir", dir, "it is in use by another berth; stop it or choose another directory")
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return file, nil
}

// DedicatedDir holds the log and the socket of a dedicated space's process.
func DedicatedDir(dataDir, space string) string { return filepath.Join(dataDir, "dedicated", space) }

// spacesDir holds a directory for each space: its store and its keys.
func spacesDir(dataDir string) string { return filepath.Join(dataDir, "spaces") }

func spaceDir(dataDir, space string) string { return filepath.Join(spacesDir(dataDir), space) }

// retainedDir is the directory of a space that was deleted with Retain.
func retainedDir(dataDir, space string) string { return filepath.Join(dataDir, "retained", space) }

// deletedDir is the directory of a space that is deleted, of which only what identifies its store is left until its object is
// gone.
func deletedDir(dataDir, space string) string { return filepath.Join(dataDir, "deleted", space) }

// hostDir holds the store and the keys of an embedded host.
func hostDir(dataDir string) string { return filepath.Join(dataDir, "host") }

// scratchDir is for files that are lost in a crash.
func scratchDir(dataDir string) string { return filepath.Join(dataDir, "tmp") }

// portCA is the name of the CA of the TLS listener's certificate, and portKeys the directory of its keys.
const portCA = "berth"

func portKeys(dataDir string) string { return filepath.Join(dataDir, "pki") }
