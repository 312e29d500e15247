// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package replicator

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
	"github.com/berth-dev/berth/snapshot"
)

// source is an open store that a follower replicates. It is comparable, and safe for concurrent use.
type source interface {
	// Last, CompactRevision, and RowsAfter are those of [kine.Store].
	Last() int64
	CompactRevision() int64
	RowsAfter(ctx context.Context, after int64, most int) ([]sqlite.Row, error)
	// copyTo copies the store to path. end must be called when the copy isn't needed any more.
	copyTo(ctx context.Context, path string) (copied snapshot.Copied, end func(), err error)
	// elsewhere reports whether another process has the store. It may take long for everything, and what it sends isn't trusted.
	elsewhere() bool
}

// local is a store that this process has open.
type local struct {
	*kine.Store
	volume *kine.Volume
}

var _ source = local{}

func (local) elsewhere() bool { return false }

// copyTo reserves the space for the archive, too.
func (l local) copyTo(ctx context.Context, path string) (copied snapshot.Copied, end func(), err error) {
	stats, err := l.Stats(ctx)
	if err != nil {
		return copied, nil, err
	}
	end, err = l.volume.Reserve(2*stats.FileBytes, false)
	if err != nil {
		return copied, nil, err
	}
	if err = l.Snapshot(ctx, path); err == nil {
		copied, err = snapshot.OpenCopied(ctx, path)
	}
	if err != nil {
		end()
		return copied, nil, err
	}
	return copied, end, nil
}

// take waits for a turn until ctx ends. end may be called several times.
func take(ctx context.Context, turns chan struct{}) (end func(), err error) {
	select {
	case turns <- struct{}{}:
		var ended bool
		return func() {
			if !ended {
				ended = true
				<-turns
			}
		}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
	}
}
