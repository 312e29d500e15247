// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/kine/sqlite"
)

// Stats are figures of a store. They are cheap to get: nothing is read for them, and an idle store stays idle.
type Stats struct {
	FileBytes int64 // of the SQLite file
	WALBytes  int64 // of the write-ahead log beside it
	UsedBytes int64 // of the file that are in use; the rest is reused
	MaxBytes  int64 // of UsedBytes, beyond which writes are refused
	Full      bool  // a write was refused because of that, and the store has not been below the limit since

	Revision          int64 // of the last write
	CompactedRevision int64 // before which versions are forgotten
	Writes            int64 // since the store was opened, those that failed included
	Watches           int   // that are open
}

// Stats reads the store's figures. Its error tells when the store was found damaged and serves nothing any more; it is
// ErrDamaged then.
func (s *Store) Stats(context.Context) (Stats, error) {
	e := s.engine
	if err := e.backend.enterQuietly(); err != nil {
		if cause, _ := e.health.check(); cause != nil {
			err = cause
		}
		return Stats{}, fmt.Errorf("read figures of store %s: %w", s.path, err)
	}
	defer e.backend.calls.Done()
	return Stats{
		FileBytes: sqlite.SizeOf(s.path), WALBytes: sqlite.SizeOf(s.path + "-wal"),
		UsedBytes: e.budget.used.Load(), MaxBytes: e.budget.max, Full: e.budget.refused.Load(),
		Revision: e.committer.last.Load(), CompactedRevision: e.log.compacted.Load(),
		Writes: e.committer.writes.Load(), Watches: e.hub.Count(),
	}, nil
}

// Used returns how many bytes the store holds, and how many it may.
func (s *Store) Used() (used, limit int64) {
	return s.engine.budget.used.Load(), s.engine.budget.max
}

// Quiet returns for how long nothing has been written; nothing counts before the store was opened.
func (s *Store) Quiet() time.Duration {
	c := s.engine.committer
	return time.Since(c.began) - time.Duration(c.latest.Load())
}
