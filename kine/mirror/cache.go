// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// markSuffix names the file that says of which state of the log a cache is.
	markSuffix = ".of"
	// loadBytes and loadRows limit a transaction that loads rows.
	loadBytes, loadRows = 8 << 20, 2000
	// loadMargin is how many bytes a log may have beyond a quarter more than the limit of the store, which a store exceeds by a
	// group of writes only.
	loadMargin = 64 << 20

	lastSQL = "SELECT COALESCE(MAX(id), 0) FROM kine"
	// An explicit revision fits a table whose revisions SQLite chooses. The previous version of a key is replaced, as both have no
	// previous revision.
	loadSQL = `INSERT OR REPLACE INTO kine (id, name, created, deleted, create_revision, prev_revision, lease, value) VALUES (?, ?, ?, 0, ?, 0, ?, ?)`
	dropSQL = "DELETE FROM kine WHERE name = ?"
	gapSQL  = `INSERT INTO kine (id, name, created, deleted, create_revision, prev_revision, lease) VALUES (?, ?, 0, 1, 0, 0, 0)`
)

// mark says of which log a cache is, and as of which takeover. The cache is current if nobody has taken the log over since, and
// their last revisions are the same.
type mark struct {
	Owner             dbms.Owner
	Epoch, Generation int64
}

func (d *Database) readMark() (m mark, err error) {
	text, err := os.ReadFile(d.path + markSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return mark{}, nil
	}
	if err == nil && json.Unmarshal(text, &m) != nil {
		return mark{}, nil // as if there were none
	}
	return m, err
}

func (d *Database) writeMark() error {
	text, err := json.Marshal(mark{d.owner, d.epoch.Load(), d.generation})
	if err != nil {
		return err
	}
	return fsutil.Replace(d.path+markSuffix, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (d *Database) removeMark() error {
	if err := os.Remove(d.path + markSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(d.path))
}

// openCache opens the cache if it is current. last is its last revision, if it is one of this store: revisions never decrease,
// not even if the log was restored from a backup.
func (d *Database) openCache(ctx context.Context, state State) (current bool, last int64, err error) {
	m, err := d.readMark()
	if err != nil || m.Owner != d.owner {
		return false, 0, err
	}
	if err := sqlite.Examine(ctx, d.path); err != nil {
		return false, 0, ctx.Err() // otherwise, it is missing or damaged
	}
	if err := d.Database.Open(ctx); err != nil {
		return false, 0, errors.Join(err, d.Database.Close(false))
	}
	err = d.Writer().QueryRowContext(ctx, lastSQL).Scan(&last)
	if err == nil && m.Epoch == state.Epoch && m.Generation == state.Generation && last == state.Revision {
		d.open = true
		return true, last, nil
	}
	err = errors.Join(err, d.Database.Close(false))
	d.Database = sqlite.NewCache(d.path)
	return false, last, err
}

// rebuild makes a new cache of what the log has. Its revision is after past, and all history before it is compacted.
func (d *Database) rebuild(ctx context.Context, past int64) (err error) {
	if err := d.removeMark(); err != nil {
		return err
	}
	if err := sqlite.RemoveAll(d.path); err != nil {
		return err
	}
	if err := sqlite.Create(ctx, d.path); err != nil {
		return err
	}
	db := sqlite.OpenOne(d.path, sqlite.CacheParams)
	defer func() { err = errors.Join(err, db.Close()) }()
	return fill(ctx, db, d.log, past, d.max+d.max/4+loadMargin, func(next int64) error { return d.log.Advance(ctx, next) })
}

// fill writes the rows of a log to a database that has empty tables. The last revision is after past, and all history before it
// is compacted. advance is called before it is committed, if there are rows.
func fill(ctx context.Context, db *sql.DB, log Log, past, limit int64, advance func(next int64) error) error {
	l := loader{ctx: ctx, db: db, limit: limit}
	defer l.rollback()
	state, err := log.Rows(ctx, l.add)
	if err != nil {
		return err
	}
	if state.Revision == 0 {
		return nil // nothing was ever written
	}
	next := max(state.Revision, l.last, past) + 1
	if err := l.begin(); err != nil {
		return err
	}
	if _, err := l.tx.Exec(gapSQL, next, fmt.Sprintf("gap-%d", next)); err != nil {
		return err
	}
	set, err := l.tx.Exec(sqlite.SetCompactedSQL, next-1)
	if err != nil {
		return err
	}
	if n, err := set.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%w: it lacks the key %s", sqlite.ErrNotStore, sqlite.CompactRevKey), err)
	}
	if err := advance(next); err != nil {
		return err
	}
	return l.commit()
}

// loader inserts rows, some at a time.
type loader struct {
	ctx   context.Context
	db    *sql.DB
	limit int64 // bytes in all

	tx          *sql.Tx
	rows        int
	bytes       int64
	total, last int64
}

func (l *loader) begin() (err error) {
	if l.tx == nil {
		l.tx, err = l.db.BeginTx(l.ctx, nil)
		l.rows, l.bytes = 0, 0
	}
	return err
}

func (l *loader) commit() error {
	err := l.tx.Commit()
	l.tx = nil
	return err
}

func (l *loader) rollback() {
	if l.tx != nil {
		_ = l.tx.Rollback() // the caller has the error
	}
}

func (l *loader) add(r Row) error {
	if err := l.begin(); err != nil {
		return err
	}
	if r.Deleted {
		_, err := l.tx.Exec(dropSQL, r.Key)
		return err
	}
	created, createRevision := 0, r.CreateRevision
	if createRevision == r.Revision {
		created, createRevision = 1, 0
	}
	if _, err := l.tx.Exec(loadSQL, r.Revision, r.Key, created, createRevision, r.Lease, r.Value); err != nil {
		return fmt.Errorf("load revision %d: %w", r.Revision, err)
	}
	size := int64(len(r.Key)*3 + len(r.Value) + 100)
	l.rows, l.bytes, l.total, l.last = l.rows+1, l.bytes+size, l.total+size, max(l.last, r.Revision)
	if l.total > l.limit {
		if err := l.measure(); err != nil {
			return err
		}
	}
	if l.total > l.limit {
		return fmt.Errorf("it has more than %d bytes, and the store may not be that large", l.limit)
	}
	if l.rows < loadRows && l.bytes < loadBytes {
		return nil
	}
	return l.commit()
}

// measure counts the rows without those that later ones have replaced.
func (l *loader) measure() error {
	return l.tx.QueryRowContext(l.ctx, "SELECT COALESCE(SUM(LENGTH(name) * 3 + COALESCE(LENGTH(value), 0) + 100), 0) FROM kine").Scan(&l.total)
}
