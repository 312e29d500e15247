// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"database/sql"
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

// storeBudget is the current size of a store, and its limit. The size is that of the pages in use: deleted and
// compacted data no longer counts, even before the file shrinks. The size may exceed the limit by one commit, and by
// deletions, which keep the deleted values until they are compacted.
type storeBudget struct {
	max     int64
	path    string
	log     klog.Logger
	account *bounds.Account
	volume  *Volume
	pressed func() // called when the store is nearly full

	used, free atomic.Int64
	refused    atomic.Bool // a write was rejected since the store was last below its limit
}

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// pages returns how many bytes of the file are in use, and how many are free.
func pages(ctx context.Context, q querier) (used, free int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size, freelist_count * page_size
		FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`).Scan(&used, &free)
	return used, free, err
}

// measure measures and records the size, before anybody else has the database's only connection. Otherwise, a commit
// that ends at the same time as a compaction could record an older measurement.
func (b *storeBudget) measure(ctx context.Context, db *sql.DB) (used, free int64, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	if used, free, err = pages(ctx, conn); err == nil {
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
		b.log.Info("Store is below its limit again; it accepts writes", "path", b.path, "usedBytes", used, "limitBytes", b.max)
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
		b.log.Error(nil, "Store is full; it rejects writes until objects are deleted", "path", b.path, "usedBytes", b.used.Load(), "limitBytes", b.max)
	}
	b.pressed()
	return 0, false
}

// frees reports whether even a full store must accept a write.
func frees(key string, deletes bool) bool {
	return deletes || key == sqlite.CompactRevKey || key == sqlite.CompactRevRow || key == kineserver.HealthKey
}
