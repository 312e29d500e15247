// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"sync"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// compaction runs the work of a [Compacter], one at a time.
type compaction struct {
	mu      sync.Mutex
	running bool
	stopped bool
	// release means that the connections are to be closed when the work has ended.
	release bool
	cancel  context.CancelFunc // of the work that runs
	done    sync.WaitGroup
}

// compact starts the work of the log that is due. The cache has all that is in the log.
func (d *Database) compact() {
	log, is := d.log.(Compacter)
	if !is {
		return
	}
	c := &d.compaction
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running || c.stopped {
		c.release = false // it is used
		return
	}
	work := log.Compact()
	if work == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.running, c.release, c.cancel = true, false, cancel
	safego.Go(&c.done, "compact the log of a store", func() {
		defer d.compacted()
		err := work(ctx, func(put func(Row) error) error { return d.cachedRows(ctx, put) })
		if err != nil && ctx.Err() == nil && !errors.Is(err, dbms.ErrFenced) {
			klog.Background().Error(err, "Could not compact the log of a store; Berth retries after the next writes", "store", d.String())
		}
	}, nil)
}

// compacted ends what compact has started.
func (d *Database) compacted() {
	c := &d.compaction
	c.mu.Lock()
	c.cancel()
	release := c.release && !c.stopped
	c.running = false
	c.mu.Unlock()
	if release {
		if err := d.release(); err != nil {
			klog.Background().Error(err, "Could not close the connections of a store", "store", d.String())
		}
	}
}

// postpone has the connections closed later, if work is running.
func (c *compaction) postpone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release = c.running
	return c.running
}

// stop ends the work that is running, and waits for it. No other begins.
func (c *compaction) stop() {
	c.mu.Lock()
	c.stopped = true
	if c.running {
		c.cancel()
	}
	c.mu.Unlock()
	c.done.Wait()
}

// cachedRows passes the current rows of the cache, all of one moment.
func (d *Database) cachedRows(ctx context.Context, put func(Row) error) error {
	db := sqlite.OpenOne(d.path, sqlite.ReaderParams)
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it has written nothing
	return currentRows(ctx, tx, put)
}
