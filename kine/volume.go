// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// volumeReserve is how much of a file system is kept free: this, or a tenth of it if that is less.
	volumeReserve = 512 << 20
	// updateShare is the part of the reserve that updates leave.
	updateShare = 4
	// smallStore is the size up to which a store may always grow, because it is not what fills the file system. The same holds
	// for other files.
	smallStore = 16 << 20
)

// Volume is the file system of the stores of a process. When it is nearly full, the largest stores may no longer grow,
// so that the rest remains for the others. The less is free, the smaller are the stores that may still grow. It is safe
// for concurrent use.
type Volume struct {
	stat     func() (free, size int64, err error)
	examined sqlite.Examinations // of stores that are about to be opened

	mu       sync.Mutex
	stores   map[*storeBudget]struct{}
	reserved int64
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

// ExamineAhead returns a function that examines the file of a store on the volume that is about to be opened, which takes 0.7 ms for each MiB.
// So Open doesn't have to, if the file stays as it is; it waits for the function, which must be called, and ends with its context. The file may
// be moved meanwhile. The result counts for a minute.
func (v *Volume) ExamineAhead(path string) (examine func(context.Context)) {
	return v.examined.Ahead(path)
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

// Reserve keeps space for a file of size bytes that is going to be written, until end is called: files that are written at the
// same time don't get the same space. It fails if there is too little. A file of a tenant, who may send one at any time, leaves
// the whole reserve to stores; another one may use as much of it as updates. If the free space is unknown, there is enough. What
// is written of a file counts twice until end is called.
func (v *Volume) Reserve(size int64, ofTenant bool) (end func(), err error) {
	if v == nil {
		return func() {}, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	free, total, err := v.stat()
	kept := reserveOf(total)
	if !ofTenant {
		kept /= updateShare
	}
	if kept += v.reserved; err == nil && size > free-kept && (size > smallStore || size > free) {
		return nil, fmt.Errorf("it has %d bytes, and the file system has %d free, of which %d are kept for stores and other copies; enlarge it, or delete snapshots or retained spaces from it",
			size, free, kept)
	}
	v.reserved += size
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.reserved -= size
	}), nil
}

func reserveOf(size int64) int64 { return min(volumeReserve, size/10) }

// mayGrow reports whether a store may grow, by a key that it creates or updates. If the file system's free space is
// unknown, all stores may. Updates may use most of the reserve, because most deletions begin with an update of
// deletionTimestamp or finalizers.
func (v *Volume) mayGrow(b *storeBudget, creates bool) bool {
	if v == nil || b.used.Load() <= smallStore {
		return true
	}
	free, size, err := v.stat()
	reserve := reserveOf(size)
	if !creates {
		reserve /= updateShare
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
