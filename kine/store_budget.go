// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"math"
	"sync/atomic"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/sqlite"
)

// DefaultMaxBytes is the default size limit of a store.
const DefaultMaxBytes = 1 << 30

// rowOverhead is about how many bytes a row takes in addition to its value and three times its key.
const rowOverhead = 100

// storeBudget is the current size of a store, and its limit. In a file, the size is that of the pages in use: deleted and
// compacted data no longer counts, even before the file shrinks. In a server, it is that of keys and values. The size may exceed the limit by one commit, and by
// deletions, which keep the deleted values until they are compacted.
type storeBudget struct {
	max     int64
	db      database
	log     klog.Logger
	account *bounds.Account
	volume  *Volume
	pressed func() // called when the store is nearly full

	used, free atomic.Int64
	unsure     atomic.Bool // a compaction failed, and may have had effect
	refused    atomic.Bool // a write was rejected since the store was last below its limit
}

// measureAll measures the whole store, and records its size.
func (b *storeBudget) measureAll(ctx context.Context) (used, free int64, err error) {
	return b.record(ctx, func() (int64, int64) { return 0, 0 })
}

// measure records the size after something other than a commit may have changed it.
func (b *storeBudget) measure(ctx context.Context) (used, free int64, err error) {
	return b.record(ctx, func() (int64, int64) {
		if b.unsure.Swap(false) {
			return 0, 0
		}
		return b.used.Load(), math.MaxInt64
	})
}

// record measures and records the size, before anybody else has the database's only connection that writes. Otherwise, a
// commit that ends at the same time as a compaction could record an older measurement.
func (b *storeBudget) record(ctx context.Context, from func() (used, after int64)) (used, free int64, err error) {
	conn, err := b.db.Writer().Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	before, after := from()
	if used, free, err = b.db.Size(ctx, conn, before, after); err == nil {
		b.set(used, free)
	}
	return used, free, err
}

// set records a measurement. The caller must have the database's only connection.
func (b *storeBudget) set(used, free int64) {
	b.used.Store(used)
	b.account.Set(bounds.StoreBytes, used)
	b.free.Store(free)
	if used < b.max/20*19 && b.refused.Load() && b.refused.Swap(false) {
		b.log.Info("Store is below its limit again; it accepts writes", "path", b.db.String(), "usedBytes", used, "limitBytes", b.max)
	}
	if used > b.max/10*9 {
		b.pressed()
	}
}

// admit reports whether a row may be written to a store that grows by grown bytes before that, and how much the row
// adds. Deletions, and the writes of compactions, are always allowed.
func (b *storeBudget) admit(r *row, grown int64) (size int64, ok bool) {
	size = int64(3*len(r.key) + 2*len(r.value) + rowOverhead) // a later version keeps a copy of the value
	within := b.used.Load()+grown+size <= b.max
	if r.frees || within && b.volume.mayGrow(b, r.creates) {
		return size, true
	}
	b.account.Refuse(bounds.StoreBytes)
	if within { // the file system is nearly full, and a compaction would write to it first
		return 0, false
	}
	if !b.refused.Swap(true) {
		b.log.Error(nil, "Store is full; it rejects writes until objects are deleted", "path", b.db.String(), "usedBytes", b.used.Load(), "limitBytes", b.max)
	}
	b.pressed()
	return 0, false
}

// frees reports whether even a full store must accept a write.
func frees(key string, deletes bool) bool {
	return deletes || key == sqlite.CompactRevKey || key == sqlite.CompactRevRow || key == kineserver.HealthKey
}
