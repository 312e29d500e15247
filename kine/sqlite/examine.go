// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/mattn/go-sqlite3"
)

const (
	magic = "SQLite format 3\x00"
	// headerSize is the size of a SQLite file's header.
	headerSize = 100
)

// columns are those of kine's table that its queries use.
var columns = []string{
	"id", "name", "created", "deleted", "create_revision", "prev_revision", "lease", "value", "old_value",
}

// Examine tells whether the file at path is a store that can be trusted, without changing a byte of it. It reads the
// whole file, about 0.7 ms a MiB from the page cache: a store is never served before all of it is known to be sound. The
// caller holds the store's lock.
func Examine(ctx context.Context, path string) error { return examine(ctx, path, nil) }

func examine(ctx context.Context, path string, ahead *Examinations) (err error) {
	if err := ExamineHeader(path); err != nil {
		return err
	}
	if n := SizeOf(path + "-journal"); n > 0 {
		return fmt.Errorf("%w: it has a rollback journal beside it, which no space leaves; restore it from a backup", ErrDamaged)
	}
	params := AtRestParams
	if n := SizeOf(path + "-wal"); n > 0 {
		params = examineWithLogParams
		if err := examineLog(path + "-wal"); err != nil {
			return err
		}
		if _, statErr := os.Stat(path + "-shm"); errors.Is(statErr, os.ErrNotExist) {
			// The log's index is made to read it. It may stay only beside a store that is going to be opened.
			defer func() {
				if err != nil {
					_ = os.Remove(path + "-shm") // it may not have come to be
				}
			}()
		}
	}
	db := OpenOne(path, params)
	defer db.Close()
	if err := examineTable(ctx, db); err != nil {
		return err
	}
	if params == AtRestParams && ahead.hasSound(ctx, path) {
		return nil
	}
	return checkPages(ctx, db, "quick_check")
}

// ExamineHeader looks at what is read before SQLite is let at the file.
func ExamineHeader(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		return fmt.Errorf("%w: the path is not a regular file; choose another path", ErrNotStore)
	}
	if fi.Size() == 0 {
		return fmt.Errorf("%w: the file is empty, and a store never is; remove it, or restore it from a backup", ErrNotStore)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, headerSize)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if !bytes.HasPrefix(head, []byte(magic)) {
		return fmt.Errorf("%w: the file is not a SQLite database, or its first page is corrupt; choose another path, or restore the file from a backup", ErrNotStore)
	}
	// SQLite takes the rest of a page that was cut off for zeros, and a file of less than a page for a new one. A page
	// may be cut off only while the log that it comes from is still there.
	pageSize, pages := pageCount(head)
	withLog := SizeOf(path+"-wal") > 0
	if n < headerSize || fi.Size() < pageSize*max(pages, 1) && !withLog {
		return fmt.Errorf("%w: %d bytes are left of %d; restore it from a backup", ErrDamaged, fi.Size(), pageSize*pages)
	}
	if withLog {
		return nil // the log may have another first page
	}
	page := make([]byte, pageSize)
	if _, err := f.ReadAt(page, 0); err != nil {
		return fmt.Errorf("%w: read its first page: %w", ErrDamaged, err)
	}
	return examineFirstPage(page)
}

const (
	// leafOfTable is the type of a page that has rows of a table, innerOfTable that of one that leads to such pages
	// (https://sqlite.org/fileformat2.html#b_tree_pages).
	leafOfTable, innerOfTable = 0x0d, 0x05
	// mostStatements and mostOfStatement bound the schema of a store, of which Berth's has a dozen statements of 200 bytes.
	mostStatements  = 32
	mostOfStatement = 2 << 10
)

// examineFirstPage tells whether a file has no more of a schema than a store. SQLite keeps the whole schema in memory, before it
// can be asked about the first statement, and a file may have a gigabyte of it.
func examineFirstPage(page []byte) error {
	tree := page[min(headerSize, len(page)):]
	const header, pointer = 8, 2
	if len(tree) < header || tree[0] != leafOfTable && tree[0] != innerOfTable {
		return fmt.Errorf("%w: its first page is corrupt; restore it from a backup", ErrDamaged)
	}
	if tree[0] == innerOfTable {
		return fmt.Errorf("%w: its schema is larger than that of a store; choose another path", ErrNotStore)
	}
	statements := int(binary.BigEndian.Uint16(tree[3:]))
	if statements > mostStatements || len(tree) < header+pointer*statements {
		return fmt.Errorf("%w: its schema has %d statements, more than a store; choose another path", ErrNotStore, statements)
	}
	for i := range statements {
		at := int(binary.BigEndian.Uint16(tree[header+pointer*i:]))
		if at >= len(page) {
			return fmt.Errorf("%w: its first page is corrupt; restore it from a backup", ErrDamaged)
		}
		if size := payloadSize(page[at:]); size > mostOfStatement {
			return fmt.Errorf("%w: its schema has a statement of %d bytes, more than a store; choose another path", ErrNotStore, size)
		}
	}
	return nil
}

// payloadSize reads the size of a row, with which its cell begins, a variable-length integer of at most 9 bytes.
func payloadSize(cell []byte) (size uint64) {
	for i, b := range cell[:min(9, len(cell))] {
		if i == 8 {
			return size<<8 | uint64(b)
		}
		if size = size<<7 | uint64(b&0x7f); b < 0x80 {
			break
		}
	}
	return size
}

// pageCount reads the size and number of pages from a SQLite header (https://sqlite.org/fileformat2.html#the_database_header).
func pageCount(head []byte) (size, count int64) {
	size = int64(binary.BigEndian.Uint16(head[16:]))
	if size == 1 {
		size = 1 << 16
	}
	return size, int64(binary.BigEndian.Uint32(head[28:]))
}

// examineTable tells whether the database holds kine's table, and nothing that would run on its own when it is used.
func examineTable(ctx context.Context, db *sql.DB) error {
	if err := examineSchema(ctx, db); err != nil { // before anything else is asked of the database
		return err
	}
	found, err := queryStrings(ctx, db, "SELECT name FROM pragma_table_info('kine')")
	if err != nil {
		return AsDamage(err)
	}
	for _, c := range columns {
		if !slices.Contains(found, c) {
			return fmt.Errorf("%w: it is a SQLite file without kine's table; choose another path", ErrNotStore)
		}
	}
	return nil
}

// checkPages reads every page and tells whether they form sound trees. It can't tell whether a value is what was
// written: SQLite keeps no checksums. check is quick_check, or integrity_check, which also compares each index with its
// table and takes two to four times as long.
func checkPages(ctx context.Context, db *sql.DB, check string) error {
	found, err := queryStrings(ctx, db, "PRAGMA "+check+"(1)")
	if err != nil {
		return AsDamage(err)
	}
	if len(found) != 1 || found[0] != "ok" {
		return fmt.Errorf("%w: %s; restore it from a backup", ErrDamaged, found)
	}
	return nil
}

// AsDamage names the errors by which SQLite says that a file is damaged.
func AsDamage(err error) error {
	var e sqlite3.Error
	if errors.As(err, &e) && (e.Code == sqlite3.ErrCorrupt || e.Code == sqlite3.ErrNotADB) {
		return fmt.Errorf("%w: %w; restore it from a backup", ErrDamaged, err)
	}
	return err
}

func queryStrings(ctx context.Context, db *sql.DB, query string) ([]string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

// SizeOf is 0 for what isn't there.
func SizeOf(path string) int64 {
	fi, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}
