// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
)

// Stats are figures of a store that are cheap to get: no data is read for them.
type Stats struct {
	FileBytes int64 // of the SQLite file
	WALBytes  int64 // of the write-ahead log beside it
	LiveBytes int64 // of the file that are in use; the rest is reused

	Revision          int64 // of the last write
	CompactedRevision int64 // before which versions are forgotten
	Watches           int   // that are open
}

// Stats reads the store's figures. Its error tells when the store was found damaged and serves nothing any more; it is
// ErrDamaged then.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	out := Stats{FileBytes: sizeOf(s.path), WALBytes: sizeOf(s.path + "-wal")}
	err := s.engine.stats(ctx, &out)
	if cause, _ := s.engine.health.check(); cause != nil {
		err = cause
	}
	if err != nil {
		return Stats{}, fmt.Errorf("read figures of store %s: %w", s.path, err)
	}
	return out, nil
}

func (e *engine) stats(ctx context.Context, out *Stats) (err error) {
	if err := e.backend.enter(); err != nil {
		return err
	}
	defer e.backend.calls.Done()
	out.Revision, out.Watches = e.committer.last.Load(), e.hub.count()
	if out.LiveBytes, err = e.log.DbSize(ctx); err != nil {
		return err
	}
	out.CompactedRevision, err = e.log.CompactRevision(ctx)
	return err
}
