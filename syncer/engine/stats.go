// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Stats count the work of one space's syncer since it was made.
type Stats struct {
	Done      uint64 // reconciles that left nothing to do
	Conflicts uint64 // that somebody was faster than, or that missed an object
	Refused   uint64 // that the host, a quota or a rule of the space refused
	Failed    uint64 // that will be tried again, and should not have to be
	Queued    int    // objects that wait for a reconcile
	Unsynced  int    // objects that the host, or a rule of the space, refused, or that failed, and are tried again
}

// counters count reconciles by their errors.
type counters struct{ done, conflicts, refused, failed atomic.Uint64 }

func (c *counters) count(err error) {
	switch {
	case err == nil:
		c.done.Add(1)
	case errors.Is(err, errRefused), errors.As(err, new(*pacedError)):
		c.refused.Add(1)
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		c.conflicts.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Stats tells what the syncer has done.
func (s *Engine) Stats() Stats {
	return Stats{
		Done: s.counters.done.Load(), Conflicts: s.counters.conflicts.Load(), Refused: s.counters.refused.Load(), Failed: s.counters.failed.Load(),
		Queued: s.Queue.length(), Unsynced: s.Queue.unsynced() + s.shortages.count(),
	}
}
