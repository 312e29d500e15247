// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// volumeReserve is how much of a file system is kept free, or a tenth of it if that is less.
	volumeReserve = 512 << 20
	// smallStore is one that may grow on any file system: it is not what fills it.
	smallStore = 16 << 20
)

// Volume is the file system that the stores of a process share. When it is nearly full, the largest stores grow no more,
// so that the rest lasts for the others: the less is free, the smaller are those that still may. It is safe for
// concurrent use.
type Volume struct {
	stat func() (free, size int64, err error)

	mu     sync.Mutex
	stores map[*storeBudget]struct{}
}

// NewVolume returns the file system that dir is on.
func NewVolume(dir string) *Volume {
	return newVolume(func() (free, size int64, err error) {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			return 0, 0, err
		}
		return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
	})
}

func newVolume(stat func() (free, size int64, err error)) *Volume {
	return &Volume{stat: stat, stores: map[*storeBudget]struct{}{}}
}

func (v *Volume) add(b *storeBudget) {
	if v != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.stores[b] = struct{}{}
	}
}

func (v *Volume) remove(b *storeBudget) {
	if v != nil {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.stores, b)
	}
}

// mayGrow says whether a store may, by a key that it creates or by one that it has. A file system that can't be asked stops
// nobody. Updates go on into most of the reserve: most deletions begin as one, of deletionTimestamp or finalizers.
func (v *Volume) mayGrow(b *storeBudget, creates bool) bool {
	if v == nil || b.used.Load() <= smallStore {
		return true
	}
	free, size, err := v.stat()
	reserve := min(volumeReserve, size/10)
	if !creates {
		reserve /= 4
	}
	if err != nil || free >= reserve {
		return true
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var largest int64
	for store := range v.stores {
		largest = max(largest, store.used.Load())
	}
	return b.used.Load() < int64(float64(largest)*float64(free)/float64(reserve))
}
