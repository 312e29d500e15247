// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mattn/go-sqlite3"

	"github.com/berth-dev/berth/kine/sqlite"
)

// Store is the file of the records. It is safe for concurrent use. Only one process may have it open.
type Store struct {
	path string
	db   *sql.DB
	next int64 // number of the next flush; used by one flush at a time
}

// version is that of the schema.
const version = 1

// schema has two tables of records. length is that of the period that begins at start, in seconds: an hour or a day. The table state has the
// number of the last flush, and last has what was known last of spaces that sleep.
const schema = `
CREATE TABLE use (
	start INTEGER NOT NULL, length INTEGER NOT NULL, tenant TEXT NOT NULL, space TEXT NOT NULL,
	received INTEGER NOT NULL, sent INTEGER NOT NULL, latency INTEGER NOT NULL, timed INTEGER NOT NULL,
	sampled REAL NOT NULL, cpu REAL NOT NULL, memory REAL NOT NULL, storage REAL NOT NULL, pods REAL NOT NULL, store REAL NOT NULL,
	counted REAL NOT NULL, objects REAL NOT NULL,
	PRIMARY KEY (start, length, tenant, space)) WITHOUT ROWID;
CREATE TABLE requests (
	start INTEGER NOT NULL, length INTEGER NOT NULL, tenant TEXT NOT NULL, space TEXT NOT NULL,
	verb TEXT NOT NULL, code INTEGER NOT NULL, count INTEGER NOT NULL,
	PRIMARY KEY (start, length, tenant, space, verb, code)) WITHOUT ROWID;
CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), flushed INTEGER NOT NULL);
INSERT INTO state VALUES (1, 0);
CREATE TABLE last (space TEXT PRIMARY KEY, objects REAL NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 1;`

// Open opens the records at path, and creates the file if it is missing. A damaged file is renamed, and new records begin: damaged is its
// new path.
func Open(ctx context.Context, path string) (s *Store, damaged string, err error) {
	s, err = open(ctx, path)
	if !isDamaged(err) {
		return s, "", err
	}
	damaged = fmt.Sprintf("%s.damaged-%d", path, time.Now().Unix())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(path+suffix, damaged+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, "", fmt.Errorf("replace damaged records of use: %w", err)
		}
	}
	s, err = open(ctx, path)
	return s, damaged, err
}

func open(ctx context.Context, path string) (*Store, error) {
	if err := sqlite.CreateFile(path); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("create records of use: %w", err)
	}
	// Each flush is on disk before it counts as written: synchronous=FULL.
	s := &Store{path: path, db: sqlite.OpenOne(path, sqlite.WriterParams)}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open records of use %s: %w", path, err), s.db.Close())
	}
	return s, nil
}

// prepare creates the tables in a new file, and reads the number of the last flush.
func (s *Store) prepare(ctx context.Context) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		var has int
		if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has); err != nil {
			return err
		}
		switch has {
		case 0:
			if _, err := tx.ExecContext(ctx, schema); err != nil {
				return err
			}
		case version:
		default:
			return fmt.Errorf("the file has version %d, and this Berth reads version %d; use a newer Berth, or move the file away", has, version)
		}
		err := tx.QueryRowContext(ctx, "SELECT flushed + 1 FROM state").Scan(&s.next)
		return err
	})
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// transact runs a transaction.
func (s *Store) transact(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// objects returns how many objects spaces had when that was known last.
func (s *Store) objects(ctx context.Context) (map[string]float64, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT space, objects FROM last")
	if err != nil {
		return nil, fmt.Errorf("read records of use: %w", err)
	}
	defer rows.Close()
	all := map[string]float64{}
	for rows.Next() {
		var space string
		var objects float64
		if err := rows.Scan(&space, &objects); err != nil {
			return nil, fmt.Errorf("read records of use: %w", err)
		}
		all[space] = objects
	}
	return all, rows.Err()
}

func isDamaged(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB)
}
