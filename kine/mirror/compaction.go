// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

// compactions is how many stores of the process are compacted at once: each takes up to some 20 MiB for that.
const compactions = 4

var compacting = semaphore.NewWeighted(compactions) //nolint:gochecknoglobals // of the process

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
		if compacting.Acquire(ctx, 1) != nil {
			return // it is closed
		}
		defer compacting.Release(1)
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

// pageRows and pageBytes limit a page of cachedRows.
const pageRows, pageBytes = 1000, 4 << 20

// pageSQL reads the newest version of each key that exists, after a key.
const pageSQL = `SELECT id, name, created, create_revision, lease, value FROM kine AS kv
	WHERE deleted = 0 AND name > ? AND id = (SELECT MAX(id) FROM kine WHERE name = kv.name) ORDER BY name LIMIT ?`

// cachedRows passes the current rows of the cache, those of a page as of one moment. So a slow put keeps no transaction open, which would
// let the write-ahead log of the cache grow.
func (d *Database) cachedRows(ctx context.Context, put func(Row) error) error {
	db := sqlite.OpenOne(d.path, sqlite.ReaderParams)
	defer db.Close()
	after := ""
	for {
		page, err := pageAfter(ctx, db, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, r := range page {
			if err := put(r); err != nil {
				return err
			}
		}
		after = page[len(page)-1].Key
	}
}

func pageAfter(ctx context.Context, db *sql.DB, key string) (page []Row, err error) {
	rows, err := db.QueryContext(ctx, pageSQL, key, pageRows)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := 0; size < pageBytes && rows.Next(); {
		r, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		page, size = append(page, r), size+len(r.Key)+len(r.Value)
	}
	return page, rows.Err()
}
