// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/vcluster/pki"
)

// appliedFile is in the directory of a space, and holds the spec that the space runs with.
const appliedFile = "applied.json"

// applied is the spec that a space runs with. It is not that of the space's object while this is paused, or means nothing.
type applied struct {
	Generation int64              `json:"generation"`
	Spec       v1alpha1.SpaceSpec `json:"spec"`
}

// readApplied reads what a space of an earlier run ran with; nil if nothing is known.
func readApplied(dir string) (*applied, error) {
	data, err := os.ReadFile(filepath.Join(dir, appliedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the spec that a space runs with: %w", err)
	}
	a := &applied{}
	if err := json.Unmarshal(data, a); err != nil {
		return nil, fmt.Errorf("read the spec that a space runs with: %s: %w", filepath.Join(dir, appliedFile), err)
	}
	return a, nil
}

func (a *applied) write(dir string) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the spec that a space runs with: %w", err)
	}
	if err := pki.WriteFile(filepath.Join(dir, appliedFile), data); err != nil {
		return fmt.Errorf("write the spec that a space runs with: %w", err)
	}
	return nil
}

// runsLike reports whether two specs make no difference to a space that runs.
func (a *applied) runsLike(spec *v1alpha1.SpaceSpec) bool {
	return equality.Semantic.DeepEqual(ofRunning(a.Spec), ofRunning(*spec))
}

// runsInPlace reports whether two specs make no difference to what runs of a space, but at most to its objects on the host, and
// to what is asked about while it runs.
func (a *applied) runsInPlace(spec *v1alpha1.SpaceSpec) bool {
	if a.Spec.Isolation == v1alpha1.Dedicated { // its process is told when it starts
		return false
	}
	return equality.Semantic.DeepEqual(ofProcess(a.Spec), ofProcess(*spec))
}

func ofProcess(spec v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	spec = ofRunning(spec)
	spec.Quota, spec.HostNamespace, spec.Sleep, spec.Snapshots = nil, v1alpha1.HostNamespace{}, v1alpha1.Sleep{}, v1alpha1.Snapshots{}
	return spec
}

// ofRunning is what of a spec matters to a space that runs.
func ofRunning(spec v1alpha1.SpaceSpec) v1alpha1.SpaceSpec {
	spec.Paused, spec.DeletionPolicy, spec.PlatformName = nil, "", ""
	if spec.Isolation == "" {
		spec.Isolation = v1alpha1.Shared
	}
	return spec
}

// appliedSpecs are those of all spaces that have a place. The zero value is ready to use. It is safe for concurrent use.
type appliedSpecs struct {
	mu sync.Mutex
	of map[string]*applied
}

// get returns what a space runs with, which must not be changed; nil if it has no place.
func (s *appliedSpecs) get(space string) *applied {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[space]
}

func (s *appliedSpecs) set(space string, a *applied) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = map[string]*applied{}
	}
	s.of[space] = a
}

func (s *appliedSpecs) remove(space string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, space)
}
