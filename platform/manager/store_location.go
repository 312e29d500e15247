// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/berth-dev/berth/platform/datadir"
)

// storeLocationFile is in the directory of a space whose store is in its pod: the platform has no store of it, or one
// that is old.
const storeLocationFile = "store-location.json"

// storeLocation is what storeLocationFile says.
type storeLocation struct {
	// New says that the space had no store when it began to run in its pod.
	New bool `json:"new,omitempty"`
}

// storeLocation returns where the store of a space is: nil if the platform has it.
func (m *Manager) storeLocation(name string) (*storeLocation, error) {
	return readStoreLocation(datadir.Space(m.config.DataDir, name))
}

func readStoreLocation(dir string) (*storeLocation, error) {
	at, err := datadir.ReadJSON[storeLocation](filepath.Join(dir, storeLocationFile))
	if err != nil {
		return nil, fmt.Errorf("find where the store of a space is: %w", err)
	}
	return at, nil
}

func (m *Manager) noteStoreInPod(name string, at storeLocation) error {
	if err := datadir.WriteJSON(filepath.Join(datadir.Space(m.config.DataDir, name), storeLocationFile), at); err != nil {
		return fmt.Errorf("note where the store of space %s is: %w", name, err)
	}
	return nil
}

// errNoPods is of a space whose store is in a pod, on a platform that has none.
var errNoPods = errors.New("the store of the space is in a pod of its own, and this platform runs none; start berth with --dedicated-pods")

// errInPod is of a space whose store is in its pod, which this platform does not serve now. The volume is the only one
// that has it.
func errInPod(name string) error {
	return fmt.Errorf("the store of space %s is in its pod, and the space does not run there: create its Space object again with spec.isolation Dedicated, and raise --dedicated-max if that is reached; then restore the space, or delete it", name)
}
