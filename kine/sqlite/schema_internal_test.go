// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"path/filepath"
	"testing"
)

// D1: stores of older Berths, which kine itself made, are stores.
func TestAStoreOfAnOlderBerthIsAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := Create(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	db := OpenOne(path, WriterParams)
	for _, statement := range append(madeByKine, "INSERT INTO kine (name) VALUES ('a')", "ANALYZE") {
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
