// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
	"time"
)

// Stats are statistics of a store. Getting them reads nothing from the disk, and does not count as use.
type Stats struct {
	FileBytes int64 // of the SQLite file; 0 for a store in a server
	WALBytes  int64 // of the write-ahead log beside it
	UsedBytes int64 // of the file; the rest is free, and will be reused
	MaxBytes  int64 // of UsedBytes; beyond it, writes are rejected
	// Unreachable says that the database could not be reached when it was last used.
	Unreachable bool
	Full        bool // a write was rejected, and the store has not been below its limit since

	Revision          int64 // of the last write
	CompactedRevision int64 // before it, versions have been removed
	Writes            int64 // since the store was opened, including failed ones
	Watches           int   // that are open
}

// Stats returns the store's statistics. If the store has been found damaged, the error is ErrDamaged.
func (s *Store) Stats(context.Context) (Stats, error) {
	e := s.engine
	if err := e.backend.enterQuietly(); err != nil {
		if cause, _ := e.health.check(); cause != nil {
			err = cause
		}
		return Stats{}, fmt.Errorf("read figures of store %s: %w", s.path, err)
	}
	defer e.backend.calls.Done()
	file, log := e.db.Files()
	return Stats{
		FileBytes: file, WALBytes: log,
		UsedBytes: e.budget.used.Load(), MaxBytes: e.budget.max, Unreachable: e.health.lost.Load(), Full: e.budget.refused.Load(),
		Revision: e.committer.last.Load(), CompactedRevision: e.log.compacted.Load(),
		Writes: e.committer.writes.Load(), Watches: e.hub.Count(),
	}, nil
}

// Used returns how many bytes the store contains, and its limit.
func (s *Store) Used() (used, limit int64) {
	return s.engine.budget.used.Load(), s.engine.budget.max
}

// Quiet returns for how long nothing has been written since the store was opened.
func (s *Store) Quiet() time.Duration {
	c := s.engine.committer
	return time.Since(c.began) - time.Duration(c.latest.Load())
}
