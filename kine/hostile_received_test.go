// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
)

// received makes a store with objects of some keys, and changes it as a tenant may who has taken over a pod. It returns the path.
func received(t *testing.T, keys []string, changes ...func(*sql.DB) error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := kine.Open(t.Context(), kine.Options{Path: path, Name: "demo"})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		create(t, s, key, "1")
	}
	closeStore(t, s)
	for _, change := range changes {
		alter(t, path, change)
	}
	return path
}

// alter changes a store on a connection of its own, as SQLite reads the schema once.
func alter(t *testing.T, path string, change func(*sql.DB) error) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	if err := errors.Join(change(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func run(statement string, args ...any) func(*sql.DB) error {
	return func(db *sql.DB) error {
		_, err := db.Exec(statement, args...)
		return err
	}
}

// L3, T9: a store that comes from a pod may have been written by a tenant. A row that is longer than any of the API server's is
// not read: a few requests for it would take the memory of all spaces.
func TestHostileARowThatIsTooLongIsNotRead(t *testing.T) {
	path := received(t, []string{"/registry/configmaps/short", "/registry/configmaps/long", "/registry/configmaps/large"},
		run("UPDATE kine SET value = zeroblob(?) WHERE name = '/registry/configmaps/long'", sqlite.LongestRow+1),
		run("UPDATE kine SET value = zeroblob(?) WHERE name = '/registry/configmaps/large'", 1<<20))
	s := openAt(t, path)
	if resp, err := s.Client().Kubernetes.Get(t.Context(), "/registry/configmaps/long", kubernetes.GetOptions{}); err == nil {
		t.Errorf("a row of %d MiB is read: %d bytes", sqlite.LongestRow>>20, len(resp.KV.Value))
	} else if !strings.Contains(err.Error(), "too big") {
		t.Errorf("a row that is too long: %v", err)
	}
	if got := value(t, s, "/registry/configmaps/short"); got != "1" {
		t.Errorf("another row: %q", got)
	}
	if got := value(t, s, "/registry/configmaps/large"); len(got) != 1<<20 {
		t.Errorf("a large row, as clients write it: %d bytes", len(got))
	}
}

// L3, T9: a store that comes from a pod may have an index that says something else than its table, so that the queries of the process
// of all spaces take as long as a tenant likes. What an open store is checked for doesn't show that.
func TestHostileAReceivedStoreWithAFalseIndexIsRefused(t *testing.T) {
	var page int
	var statement string
	path := received(t, []string{"/registry/configmaps/a"},
		func(db *sql.DB) error {
			return errors.Join(db.QueryRow("SELECT rootpage, sql FROM sqlite_schema WHERE name = 'kine_name_id_index'").Scan(&page, &statement),
				run("PRAGMA writable_schema=ON")(db), run("DELETE FROM sqlite_schema WHERE name = 'kine_name_id_index'")(db))
		},
		run("UPDATE kine SET name = '/registry/configmaps/b' WHERE name = '/registry/configmaps/a'"),
		func(db *sql.DB) error {
			return errors.Join(run("PRAGMA writable_schema=ON")(db),
				run("INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('index', 'kine_name_id_index', 'kine', ?, ?)", page, statement)(db))
		})
	if err := sqlite.Examine(t.Context(), path); err != nil {
		t.Errorf("the quick check: %v", err)
	}
	if err := kine.CheckReceived(t.Context(), path, nil); !errors.Is(err, sqlite.ErrDamaged) {
		t.Errorf("a false index: %v", err)
	}
}

// L3, T9: a store that comes from a pod has no more than a tenant could have written to one in the process of all spaces.
func TestHostileAReceivedStoreWithTooMuchIsRefused(t *testing.T) {
	const a = "/registry/configmaps/a"
	limits := bounds.Limits{bounds.Objects: 5, bounds.RoleBindings: 2, bounds.StoreBytes: 1 << 20}
	for name, tc := range map[string]struct {
		keys   []string
		change func(*sql.DB) error
		want   string
	}{
		"a sound one":            {[]string{a, "/registry/rolebindings/a", "/registry/rolebindings/b"}, nil, ""},
		"too many objects":       {[]string{a, a + "1", a + "2", a + "3", a + "4", a + "5"}, nil, "objects"},
		"too many of a kind":     {[]string{"/registry/rolebindings/a", "/registry/rolebindings/b", "/registry/rolebindings/c"}, nil, "rolebindings"},
		"more than clients send": {[]string{a}, run("UPDATE kine SET value = zeroblob(3 << 20)"), "clients can write"},
		"too much in all":        {[]string{a, a + "1"}, run("UPDATE kine SET value = zeroblob(600 << 10) WHERE name > '/registry/c'"), "store-bytes"},
		"a revision below 1":     {[]string{a}, run("UPDATE kine SET id = -5 WHERE name = ?", a), "its revisions begin at -5"},
		"no revision left":       {[]string{a}, run("UPDATE kine SET id = 9223372036854775807 WHERE name = ?", a), "its revisions"},
		"a counter near the end": {[]string{a}, run("UPDATE sqlite_sequence SET seq = 9223372036854775000"), "its revisions"},
		"two counters":           {[]string{a}, run("INSERT INTO sqlite_sequence (name, seq) VALUES ('kine', 1 << 61)"), "by 2 counters"},
		"too much in keys":       {[]string{a, a + "1"}, run("UPDATE kine SET name = name || hex(zeroblob(300 << 10)) WHERE name > '/registry/c'"), "store-bytes"},
		"too much history":       {[]string{a, a + "1"}, run("UPDATE kine SET deleted = 1, old_value = zeroblob(1200 << 10) WHERE name > '/registry/c'"), "store-bytes"},
		"no index":               {[]string{a}, run("DROP INDEX kine_name_prev_revision_uindex"), "indexes are missing"},
		"text for a number":      {[]string{a}, run("UPDATE kine SET lease = 'x' WHERE name = ?", a), "other types"},
		"compacted to the end":   {[]string{a}, run("UPDATE kine SET prev_revision = 1 << 60 WHERE name = 'compact_rev_key'"), "how far it is compacted"},
		"a key that is no text":  {[]string{a}, run("UPDATE kine SET name = CAST(x'2fff' AS TEXT) WHERE name = ?", a), "not UTF-8"},
		"a counter of text":      {[]string{a}, run("UPDATE sqlite_sequence SET seq = 'x'"), "its revisions"},
	} {
		t.Run(name, func(t *testing.T) {
			path := received(t, tc.keys)
			if tc.change != nil {
				alter(t, path, tc.change)
			}
			err := kine.CheckReceived(t.Context(), path, limits)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// L3, T9: however far apart the revisions of a store are, a compaction takes time by what is in it.
func TestHostileACompactionPassesOverMissingRevisions(t *testing.T) {
	keys := make([]string, 0, 2500)
	for i := range cap(keys) {
		keys = append(keys, fmt.Sprintf("/registry/configmaps/%d", i))
	}
	path := received(t, keys, run("UPDATE kine SET id = id + (1 << 61) WHERE id > 1200 AND id <= 2400"),
		run("UPDATE kine SET id = id + (1 << 62) - 10000 WHERE id > 2400 AND id < 10000"), run("UPDATE sqlite_sequence SET seq = (1 << 62) - 1"))
	s := openAt(t, path)
	last := put(t, s, keys[0], "2", get(t, s, keys[0]))
	for range 1100 { // as many as a compaction keeps
		last = put(t, s, keys[1], "2", get(t, s, keys[1]))
	}
	if _, err := s.Client().Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if compacted := s.CompactRevision(); compacted < 1<<62-1 {
		t.Errorf("compacted to %d of %d", compacted, last)
	}
	if got := value(t, s, keys[2450]); got != "1" {
		t.Errorf("an object beyond the gap: %q", got)
	}
}

func get(t *testing.T, s *kine.Store, key string) (revision int64) {
	t.Helper()
	resp, err := s.Client().Kubernetes.Get(t.Context(), key, kubernetes.GetOptions{})
	if err != nil || resp.KV == nil {
		t.Fatalf("get %s: %v, %v", key, resp, err)
	}
	return resp.KV.ModRevision
}
