// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/snapshot"
)

// dedicatedSpace is what restores need of a space with its own process.
type dedicatedSpace interface {
	PutStore(ctx context.Context, path string, restore bool) error
	Wake(ctx context.Context) error
}

func (m *Manager) elsewhere(space string) dedicatedSpace {
	if process := m.processes.get(space); process != nil {
		return process
	}
	return nil
}

// allSpaces are the spaces of the shard and those with their own processes, for snapshots.
type allSpaces struct {
	spaceprocess.Snapshots
	manager *Manager
}

// Names implements [snapshot.Spaces], like the following methods.
func (s allSpaces) Names() []string {
	return slices.AppendSeq(s.Snapshots.Names(), maps.Keys(s.manager.processes.all()))
}

func (s allSpaces) Snapshot(ctx context.Context, space, path string) (elsewhere bool, err error) {
	if process := s.manager.processes.get(space); process != nil {
		if here, err := s.manager.notMovedYet(space); err != nil {
			return false, err
		} else if here {
			return false, snapshot.ErrAsleep // so that the file on this machine is copied
		}
		return true, process.CopyStore(ctx, path, s.manager.admitCopy(space))
	}
	return s.Snapshots.Snapshot(ctx, space, path)
}

// notMovedYet reports whether a space must have a pod, but its current store is still on this machine, where nothing
// runs it.
func (m *Manager) notMovedYet(space string) (bool, error) {
	if m.pods == nil {
		return false, nil
	}
	where, err := m.storeLocation(space)
	return err == nil && where == nil && snapshot.Exists(datadir.Space(m.config.DataDir, space)), err
}

func (s allSpaces) Revision(space string) int64 {
	if process := s.manager.processes.get(space); process != nil {
		state, err := process.State(context.Background())
		if err != nil {
			return 0
		}
		return state.Revision
	}
	return s.Snapshots.Revision(space)
}

func (s allSpaces) Wake(ctx context.Context, space string) error {
	if process := s.manager.processes.get(space); process != nil {
		return process.Wake(ctx)
	}
	return s.Snapshots.Wake(ctx, space)
}

// admitCopy returns what admits a copy of a dedicated space's store by its size: it must not be larger than the space's limit
// allows, and there must be space for it on the disk, beside other copies. A file has more than what counts towards the limit,
// for example free pages.
func (m *Manager) admitCopy(space string) func(size int64) (end func(), err error) {
	return func(size int64) (end func(), err error) {
		const slack = 64 << 20
		if most := 4*m.config.Specs.Limits(space).Of(bounds.StoreBytes) + slack; size > most {
			return nil, fmt.Errorf("it has %d bytes, at most %d are possible", size, most)
		}
		return m.volume.Reserve(size, true)
	}
}
