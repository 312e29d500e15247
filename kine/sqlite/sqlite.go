// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"time"

	"github.com/mattn/go-sqlite3"
)

// Parameters of a connection, by what it is for. All have a private cache: with a shared one, a reader gets "database
// table is locked" at once instead of waiting.
//
// The writer uses WAL, so that readers and the writer don't wait for one another, and synchronous=FULL: a commit is
// fsynced before it is acknowledged (D1). With NORMAL the last commits go with the power. A transaction takes its lock
// first (txlock=immediate) instead of failing half-way.
//
// Readers can't write at all, which makes the writer the only one by construction. Their page cache is small: the
// operating system has the pages, and each space has several readers.
//
// A new file gets auto_vacuum=INCREMENTAL, which can't be turned on later without rewriting the file, so that a store
// can shrink while it serves.
const (
	WriterParams = "mode=rw&cache=private&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate&_busy_timeout=10000&_cache_size=-1024&_stmt_cache_size=8"
	ReaderParams = "mode=ro&cache=private&_busy_timeout=10000&_cache_size=-512&_stmt_cache_size=16"
	// CacheParams are for a store whose loss loses no data: after a power loss, its last commits may be missing, but not others.
	CacheParams   = "mode=rw&cache=private&_journal_mode=WAL&_synchronous=NORMAL&_txlock=immediate&_busy_timeout=10000&_cache_size=-1024&_stmt_cache_size=8"
	CreatorParams = WriterParams + "&_auto_vacuum=incremental"
	// AtRestParams are for a file at rest, which is examined as it lies, without locks and without files beside it. A log
	// left by a kill makes that impossible: it holds pages newer than the file's.
	AtRestParams         = "mode=ro&cache=private&immutable=1"
	examineWithLogParams = "mode=ro&cache=private"
)

// busyTimeout is the one of the connections' parameters.
const busyTimeout = 10 * time.Second

// Schema is kine's table, with the two indexes its queries on SQLite live from: all versions of a name in order (a row's
// id is part of any index), and the one that lets a single successor of a version in. kine itself makes six, and the
// other four cost a page each in every commit. Files it made keep theirs. The index of leases costs only what has one.
var Schema = []string{
	`CREATE TABLE IF NOT EXISTS kine (
		id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER,
		create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB)`,
	`CREATE INDEX IF NOT EXISTS kine_name_id_index ON kine (name, id)`,
	`CREATE UNIQUE INDEX IF NOT EXISTS kine_name_prev_revision_uindex ON kine (name, prev_revision)`,
	`CREATE INDEX IF NOT EXISTS kine_lease_index ON kine (lease) WHERE lease > 0`,
}

// kine keeps how far it has compacted under the key that the API server uses for the same, and the API server's elsewhere.
const (
	CompactRevKey = "compact_rev_key"
	CompactRevRow = "compact_rev_key_apiserver"
)

const (
	// CompactSQL removes what was superseded or deleted up to a revision (given twice), from where the last compaction
	// ended.
	CompactSQL = `
	WITH span AS (
		SELECT id, prev_revision, deleted FROM kine
		WHERE name != 'compact_rev_key' AND id <= ?
			AND id > (SELECT COALESCE(MAX(prev_revision), 0) FROM kine WHERE name = 'compact_rev_key'))
	DELETE FROM kine WHERE id <= ? AND id IN (
		SELECT prev_revision FROM span WHERE prev_revision != 0
		UNION SELECT id FROM span WHERE deleted != 0)`
	// CurrentSQL reads the values of the keys from one to before another, up to a length and a number.
	CurrentSQL = `
	SELECT value FROM kine AS kv
	WHERE name >= ? AND name < ? AND deleted = 0 AND LENGTH(value) <= ?
		AND id = (SELECT MAX(id) FROM kine WHERE name = kv.name)
	ORDER BY name LIMIT ?`
	// SetCompactedSQL notes up to which revision a store is compacted.
	SetCompactedSQL = `UPDATE kine SET prev_revision = ? WHERE name = 'compact_rev_key'`
)

// connector opens connections to one file.
type connector struct{ dsn string }

// LongestRow is how many bytes a row may have. A client may write values of up to 1.5 MiB, and a row may have two, with the
// value before.
const LongestRow = 16 << 20

// Connect implements [driver.Connector]. A file may be from somebody who isn't trusted: its schema may use only functions
// without side effects, pages are checked when they are read, and no row is longer than a store's
// (https://sqlite.org/security.html).
func (c connector) Connect(context.Context) (driver.Conn, error) {
	driver := &sqlite3.SQLiteDriver{ConnectHook: func(conn *sqlite3.SQLiteConn) error {
		conn.SetLimit(sqlite3.SQLITE_LIMIT_LENGTH, LongestRow)
		_, err := conn.Exec("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON", nil)
		return err
	}}
	return driver.Open(c.dsn)
}

// Driver implements [driver.Connector].
func (c connector) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

// OpenOne opens a database of one connection.
func OpenOne(path, params string) *sql.DB {
	db := sql.OpenDB(connector{dsn(path, params)})
	db.SetMaxOpenConns(1)
	return db
}

// dsn is a SQLite URI for path with the given parameters. Everything but plain letters is escaped: "?", "#" and "%" mean
// something in a URI.
func dsn(path, params string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString("file:")
	for i := range len(path) {
		switch c := path[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '/', c == '.', c == '-':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String() + "?" + params
}
