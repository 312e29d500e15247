// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
)

// Snapshots adapts a shard's spaces for snapshots.
type Snapshots struct{ *shard.Shard }

// Snapshot implements [snapshot.Spaces].
func (s Snapshots) Snapshot(ctx context.Context, name, path string) (elsewhere bool, err error) {
	running := s.Space(name)
	if running == nil {
		return false, snapshot.ErrAsleep
	}
	err = running.Snapshot(ctx, path)
	if err != nil && ctx.Err() == nil && s.Space(name) != running {
		return false, snapshot.ErrAsleep // it went to sleep in the meantime
	}
	return false, err
}

// Wake implements [snapshot.Spaces]. It does not wake a space that may end the process: a snapshot is not worth that.
func (s Snapshots) Wake(ctx context.Context, name string) error {
	if err := s.HeldBack(name); err != nil {
		return fmt.Errorf("wake space %s: %w", name, err)
	}
	return s.Shard.Wake(ctx, name)
}

// Revision implements [snapshot.Spaces].
func (s Snapshots) Revision(name string) int64 {
	if running := s.Space(name); running != nil {
		if stats, err := running.StoreStats(context.Background()); err == nil {
			return stats.Revision
		}
	}
	return 0
}
