// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"errors"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
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
func (s *Syncer) Stats() Stats {
	return Stats{
		Done: s.counters.done.Load(), Conflicts: s.counters.conflicts.Load(), Refused: s.counters.refused.Load(), Failed: s.counters.failed.Load(),
		Queued: s.queue.length(), Unsynced: s.queue.unsynced() + s.shortages.count(),
	}
}

// length is how many keys wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.first) + len(q.rest)
}

// unsynced is how many keys did not pass, and are due again later.
func (q *queue) unsynced() (count int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.later {
		if t.refused || t.failed {
			count++
		}
	}
	return count
}

// count is how many objects wait for a quota to allow more.
func (s *shortages) count() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, short := range s.of {
		count += len(short.queued)
	}
	return count
}

// Objects counts the host objects of all spaces, by space and resource. Of classes
// there are only spaces' own, which are of resources of their own.
func (h *Host) Objects() map[string]map[string]int {
	count := map[string]map[string]int{}
	for resource, f := range h.routers {
		if isClass(resource) || resource == quotas {
			continue
		}
		for _, item := range f.All() {
			o, ok := item.(client.Object)
			if !ok {
				continue
			}
			space := f.SpaceOf(o)
			if space == "" || space == hostcache.EverySpace {
				continue
			}
			if count[space] == nil {
				count[space] = map[string]int{}
			}
			count[space][resource]++
		}
	}
	return count
}

// VolumesBeingReclaimed counts the host's volumes of claims of a space that the host deletes once their claims are gone.
func (h *Host) VolumesBeingReclaimed(space string) (count int) {
	f := h.routers[resources.Volumes]
	if f == nil {
		return 0
	}
	for _, item := range f.All() {
		if v, ok := item.(*corev1.PersistentVolume); ok && f.SpaceOf(v) == space && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
			count++
		}
	}
	return count
}
