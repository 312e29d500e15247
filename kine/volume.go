// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// volumeReserve is how much of a file system is kept free: this, or a tenth of it if that is less.
	volumeReserve = 512 << 20
	// smallStore is the size up to which a store may always grow, because it is not what fills the file system.
	smallStore = 16 << 20
)

// Volume is the file system of the stores of a process. When it is nearly full, the largest stores may no longer grow,
// so that the rest remains for the others. The less is free, the smaller are the stores that may still grow. It is safe
// for concurrent use.
type Volume struct {
	stat func() (free, size int64, err error)

	mu     sync.Mutex
	stores map[*storeBudget]struct{}
}

// NewVolume returns the file system of dir.
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

// mayGrow reports whether a store may grow, by a key that it creates or updates. If the file system's free space is
// unknown, all stores may. Updates may use most of the reserve, because most deletions begin with an update of
// deletionTimestamp or finalizers.
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
