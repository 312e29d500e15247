// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// madeByKine is what kine itself makes (pkg/drivers/sqlite of v0.16.4 and v0.17.0) beside what [Schema] has. Stores of the first Berths
// have it.
var madeByKine = []string{
	`CREATE INDEX IF NOT EXISTS kine_name_index ON kine (name)`,
	`CREATE INDEX IF NOT EXISTS kine_id_deleted_index ON kine (id,deleted)`,
	`CREATE INDEX IF NOT EXISTS kine_prev_revision_index ON kine (prev_revision)`,
	`CREATE INDEX IF NOT EXISTS kine_id_compact_rev_key_with_prev_revision_index ON kine(id, name, prev_revision) WHERE name != 'compact_rev_key' AND prev_revision != 0`,
}

// madeBySQLite is what SQLite makes for AUTOINCREMENT (https://sqlite.org/fileformat2.html#internal_schema_objects). Berth
// never has it make statistics (ANALYZE): false ones in a file from somebody else would make each query slow.
var madeBySQLite = []string{`CREATE TABLE sqlite_sequence(name,seq)`}

// examineSchema tells whether the database holds nothing but what a store has, statement by statement. Else SQLite could run
// what somebody put in the file: the expression of a CHECK, of a generated column or of an index, a trigger, a view, or a
// virtual table. Reading the schema runs none of them, but a check of the file does.
func examineSchema(ctx context.Context, db *sql.DB) error {
	known := map[string]bool{}
	for _, statement := range slices.Concat(Schema, madeByKine, madeBySQLite) {
		known[normalized(strings.Replace(statement, "IF NOT EXISTS ", "", 1))] = true // which SQLite doesn't keep
	}
	rows, err := db.QueryContext(ctx, "SELECT CAST(type AS TEXT), CAST(name AS TEXT), CAST(sql AS TEXT) FROM sqlite_schema")
	if err != nil {
		return AsDamage(err)
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, statement sql.NullString
		if err := rows.Scan(&kind, &name, &statement); err != nil {
			return AsDamage(err)
		}
		automatic := !statement.Valid && kind.String == "index" && strings.HasPrefix(name.String, "sqlite_autoindex_")
		text, object := normalized(statement.String), strings.ToUpper(kind.String)+" "+name.String
		made := strings.HasPrefix(text, "CREATE "+object) || strings.HasPrefix(text, "CREATE UNIQUE "+object)
		if strings.HasPrefix(name.String, "sqlite_stat") {
			return fmt.Errorf("%w: it has the statistics %.100q, by which SQLite could be slow; if you made them with ANALYZE, delete them with DROP TABLE, else restore it from a backup", ErrNotStore, name.String)
		}
		if !automatic && (!made || !known[text]) {
			return fmt.Errorf("%w: it holds the %.20q %.100q, which is not as a store has it; restore it from a backup", ErrNotStore, kind.String, name.String)
		}
	}
	return AsDamage(rows.Err())
}

// normalized is a statement as SQLite keeps it, with one space between words and none beside punctuation. Literals stay as they
// are.
func normalized(statement string) string {
	var text strings.Builder
	last, space, literal := ' ', false, false
	for _, r := range statement {
		if literal {
			text.WriteRune(r)
			literal, last = r != '\'', r
			continue
		}
		if strings.ContainsRune(" \t\r\n", r) {
			space = true
			continue
		}
		literal = r == '\''
		if space && isWord(last) && isWord(r) {
			text.WriteByte(' ')
		}
		text.WriteRune(r)
		last, space = r, false
	}
	return text.String()
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
