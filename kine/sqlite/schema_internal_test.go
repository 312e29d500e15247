// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// D1: stores of older Berths, which kine itself made, are stores.
func TestAStoreOfAnOlderBerthIsAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := Create(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	db := OpenOne(path, WriterParams)
	for _, statement := range append(madeByKine, "INSERT INTO kine (name) VALUES ('a')") {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Examine(t.Context(), path); err != nil {
		t.Error(err)
	}
}

// D1, S3: a file from somebody else has neither statistics, by which SQLite would choose slow plans, nor a schema that is
// like that of a store but for spaces.
func TestHostileAStoreIsRefusedThatIsNearlyOne(t *testing.T) {
	for reason, statements := range map[string][]string{
		"statistics":                      {"INSERT INTO kine (name) VALUES ('a')", "ANALYZE"},
		"a space at the end of a literal": {`CREATE INDEX kine_id_compact_rev_key_with_prev_revision_index ON kine(id, name, prev_revision) WHERE name != 'compact_rev_key ' AND prev_revision != 0`},
		"words in a literal":              {`CREATE INDEX kine_id_compact_rev_key_with_prev_revision_index ON kine(id, name, prev_revision) WHERE name != 'IF NOT EXISTS compact_rev_key' AND prev_revision != 0`},
		"a space in a literal":            {`CREATE INDEX kine_id_compact_rev_key_with_prev_revision_index ON kine(id, name, prev_revision) WHERE name != 'compact_ rev_key' AND prev_revision != 0`},
	} {
		t.Run(reason, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := Create(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			db := OpenOne(path, WriterParams)
			for _, statement := range statements {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if err := Examine(t.Context(), path); !errors.Is(err, ErrNotStore) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// D1, S3: SQLite holds the whole schema of a file in memory before it can be asked about any of it, so a file that somebody made
// is not given to SQLite if it has more of one than a store.
func TestHostileALargeSchemaIsRefusedBeforeSQLiteReadsIt(t *testing.T) {
	for reason, statements := range map[string]func() []string{
		"many tables": func() (all []string) {
			for i := range 40 {
				all = append(all, fmt.Sprintf("CREATE TABLE t%d(a)", i))
			}
			return all
		},
		"more tables than fit in a page": func() (all []string) {
			for i := range 2000 {
				all = append(all, fmt.Sprintf("CREATE TABLE t%d(a)", i))
			}
			return all
		},
		"a long statement": func() []string { return []string{"CREATE TABLE t(a " + strings.Repeat("b ", 4<<10) + ")"} },
	} {
		t.Run(reason, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := Create(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			db := OpenOne(path, WriterParams)
			for _, statement := range statements() {
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if err := ExamineHeader(path); !errors.Is(err, ErrNotStore) {
				t.Errorf("got %v", err)
			}
		})
	}
}
