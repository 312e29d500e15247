// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Stats count what one space's syncer has done since it was created.
type Stats struct {
	Done      uint64 // reconciles after which nothing is left to do
	Conflicts uint64 // somebody else was faster, or an object was missing
	Refused   uint64 // rejected by the host, a quota, or a rule of the space
	Failed    uint64 // unexpected errors, which are retried
	Queued    int    // objects that wait for a reconcile
	Unsynced  int    // objects that were rejected, or that failed, and are retried
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

// Stats returns what the syncer has done.
func (s *Engine) Stats() Stats {
	return Stats{
		Done: s.counters.done.Load(), Conflicts: s.counters.conflicts.Load(), Refused: s.counters.refused.Load(), Failed: s.counters.failed.Load(),
		Queued: s.Queue.length(), Unsynced: s.Queue.unsynced() + s.shortages.count(),
	}
}
