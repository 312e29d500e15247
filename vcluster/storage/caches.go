// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// checkCached refuses a further object to a space whose informers hold too much: decoded, an object may take forty times what it
// takes in the store. Informers count it as they decode it. As of the store, a part is kept for updates: see reserve.
func (b *boundedStorage) checkCached(obj runtime.Object) error {
	limit := b.account.Limit(bounds.CachedBytes)
	if b.account.Used(bounds.CachedBytes) <= limit-limit/reserve {
		return nil
	}
	return refusal.Status(b.account.Exceeds(bounds.CachedBytes, limit/reserve+heapsize.Cached(obj)), b.resource, nameOf(obj))
}

// boundCached makes update refuse what would make a further object, as server-side apply does, or have one take more than it
// did, in a space whose informers hold too much. An object may always be marked as deleted.
func (b *boundedStorage) boundCached(update storage.UpdateFunc) storage.UpdateFunc {
	limit := b.account.Limit(bounds.CachedBytes)
	used := b.account.Used(bounds.CachedBytes)
	if used <= limit-limit/reserve {
		return update
	}
	return func(old runtime.Object, response storage.ResponseMeta) (runtime.Object, *uint64, error) {
		before, deleted := heapsize.Cached(old), isDeleted(old) // update may change it
		updated, ttl, err := update(old, response)
		if err != nil {
			return nil, nil, err
		}
		if response.ResourceVersion == 0 {
			err = b.checkCached(updated)
		} else if grown := heapsize.Cached(updated) - before; grown > 0 && deleted == isDeleted(updated) {
			err = refusal.Status(b.account.Exceeds(bounds.CachedBytes, grown), b.resource, nameOf(updated))
		}
		if err != nil {
			return nil, nil, err
		}
		return updated, ttl, nil
	}
}
