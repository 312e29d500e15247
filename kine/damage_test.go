// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "github.com/mattn/go-sqlite3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

const page = 4096

// D1: a damaged store is reported, never half-served, and what is no store is left alone.
func TestOpenRefusesWhatItCannotTrustAndLeavesItAsItWas(t *testing.T) {
	sound := soundStore(t, 60)
	hot, hotLog := storeWithLog(t)
	cases := map[string]struct {
		reason string
		make   func(t *testing.T, path string)
		want   error
	}{
		"Empty": {
			reason: "A store is never empty: it is made aside and moved into place.",
			make:   func(t *testing.T, path string) { write(t, path, nil) },
			want:   kine.ErrNotStore,
		},
		"Text": {
			reason: "A mistyped path must not cost a file.",
			make:   func(t *testing.T, path string) { write(t, path, []byte(strings.Repeat("apiVersion: v1\n", 1000))) },
			want:   kine.ErrNotStore,
		},
		"OtherDatabase": {
			reason: "SQLite would add kine's table to any database.",
			make:   func(t *testing.T, path string) { execSQL(t, path, "CREATE TABLE notes (text)") },
			want:   kine.ErrNotStore,
		},
		"OtherTableKine": {
			reason: "The name alone makes no store.",
			make:   func(t *testing.T, path string) { execSQL(t, path, "CREATE TABLE kine (id INTEGER, name TEXT)") },
			want:   kine.ErrNotStore,
		},
		"Trigger": {
			reason: "A file from elsewhere must not bring statements that run with the store's.",
			make: func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "CREATE TRIGGER t AFTER INSERT ON kine BEGIN DELETE FROM kine; END")
			},
			want: kine.ErrNotStore,
		},
		"Check": {
			reason: "The check of the file would evaluate it.",
			make: func(t *testing.T, path string) {
				execSQL(t, path, "CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER, create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB, CHECK (length(name) > 0))")
			},
			want: kine.ErrNotStore,
		},
		"GeneratedColumn": {
			reason: "It would be evaluated with each row.",
			make: func(t *testing.T, path string) {
				execSQL(t, path, "CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER, create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB, extra AS (length(name)))")
			},
			want: kine.ErrNotStore,
		},
		"VirtualTable": {
			reason: "A module reads what is in the file as it likes.",
			make: func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "CREATE VIRTUAL TABLE v USING rtree(id, a, b)")
			},
			want: kine.ErrNotStore,
		},
		"FurtherTable": {
			reason: "Nothing tells what it is for.",
			make: func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "CREATE TABLE notes (text)")
			},
			want: kine.ErrNotStore,
		},
		"ExpressionIndex": {
			reason: "It would be evaluated with each write.",
			make: func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "CREATE INDEX i ON kine (length(name))")
			},
			want: kine.ErrNotStore,
		},
		"View": {
			reason: "It would run when it is read.",
			make: func(t *testing.T, path string) {
				write(t, path, sound)
				execSQL(t, path, "CREATE VIEW v AS SELECT * FROM kine")
			},
			want: kine.ErrNotStore,
		},
		"Directory": {
			reason: "A directory can't be opened, and must not be replaced.",
			make: func(t *testing.T, path string) {
				if err := os.Mkdir(path, 0o700); err != nil {
					t.Fatal(err)
				}
			},
			want: kine.ErrNotStore,
		},
		"SymbolicLink": {
			reason: "The lock lies beside the link: by two links, a store would be open twice.",
			make: func(t *testing.T, path string) {
				write(t, path+".real", sound)
				if err := os.Symlink(path+".real", path); err != nil {
					t.Fatal(err)
				}
			},
			want: kine.ErrNotStore,
		},
		"FirstPageGarbage": {
			reason: "Without its first page nothing tells that it was a store.",
			make:   func(t *testing.T, path string) { write(t, path, garbled(sound, 0, page)) },
			want:   kine.ErrNotStore,
		},
		"FirstPageGarbageBehindItsHeader": {
			reason: "The table of contents is gone.",
			make:   func(t *testing.T, path string) { write(t, path, garbled(sound, 100, page-100)) },
			want:   kine.ErrDamaged,
		},
		"HeaderFieldsGarbage": {
			reason: "It says it is SQLite's, and nothing in it can be.",
			make:   func(t *testing.T, path string) { write(t, path, garbled(sound, 16, 84)) },
			want:   kine.ErrDamaged,
		},
		"HalfGone": {
			reason: "A copy broke off.",
			make:   func(t *testing.T, path string) { write(t, path, sound[:len(sound)/2/page*page]) },
			want:   kine.ErrDamaged,
		},
		"CutWithinAPage": {
			reason: "SQLite takes the rest of the page for zeros.",
			make:   func(t *testing.T, path string) { write(t, path, sound[:len(sound)-page/3]) },
			want:   kine.ErrDamaged,
		},
		"LittleLeft": {
			reason: "SQLite takes such a file for a new one.",
			make:   func(t *testing.T, path string) { write(t, path, sound[:100]) },
			want:   kine.ErrDamaged,
		},
		"PageZeroed": {
			reason: "A block that was never written back.",
			make: func(t *testing.T, path string) {
				b := bytes.Clone(sound)
				clear(b[len(b)/2/page*page:][:page])
				write(t, path, b)
			},
			want: kine.ErrDamaged,
		},
		"PagesSwapped": {
			reason: "Each is sound, and in the wrong place.",
			make: func(t *testing.T, path string) {
				b := bytes.Clone(sound)
				i, j := 10*page, 11*page
				copy(b[i:], sound[j:j+page])
				copy(b[j:], sound[i:i+page])
				write(t, path, b)
			},
			want: kine.ErrDamaged,
		},
		"PageGarbageBesideALog": {
			reason: "A store killed and damaged: the log must stay as it is, and get no index.",
			make: func(t *testing.T, path string) {
				write(t, path, garbled(hot, len(hot)/2/page*page, page))
				write(t, path+"-wal", hotLog)
			},
			want: kine.ErrDamaged,
		},
		"LogGarbageBeforeItsLastCommits": {
			reason: "SQLite takes the log to end there, and the writes after it were acknowledged.",
			make: func(t *testing.T, path string) {
				write(t, path, hot)
				write(t, path+"-wal", garbled(hotLog, len(hotLog)/3, 8))
			},
			want: kine.ErrDamaged,
		},
		"LogHeaderGarbage": {
			reason: "SQLite takes the log for none.",
			make: func(t *testing.T, path string) {
				write(t, path, hot)
				write(t, path+"-wal", garbled(hotLog, 0, 32))
			},
			want: kine.ErrDamaged,
		},
		"LogWithoutItsFile": {
			reason: "A new store would be made of an old one's last writes.",
			make:   func(t *testing.T, path string) { write(t, path+"-wal", hotLog) },
			want:   kine.ErrDamaged,
		},
		"RollbackJournal": {
			reason: "SQLite would undo the file to what a journal of unknown origin says.",
			make: func(t *testing.T, path string) {
				write(t, path, sound)
				write(t, path+"-journal", []byte("something"))
			},
			want: kine.ErrDamaged,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			c.make(t, path)
			before := contents(t, filepath.Dir(path))
			s, err := kine.Open(t.Context(), kine.Options{Path: path})
			if err == nil {
				closeStore(t, s)
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("open = %v, want %v with the path. %s", err, c.want, c.reason)
			}
			if diff := cmp.Diff(before, contents(t, filepath.Dir(path))); diff != "" {
				t.Errorf("files changed: %s", diff)
			}
		})
	}
}

func TestDamageToAnyPageIsFound(t *testing.T) {
	sound := soundStore(t, 30)
	for at := page; at < len(sound); at += page {
		path := filepath.Join(t.TempDir(), "state.db")
		write(t, path, garbled(sound, at, page))
		s, err := kine.Open(t.Context(), kine.Options{Path: path})
		if err == nil {
			closeStore(t, s)
		}
		if !errors.Is(err, kine.ErrDamaged) {
			t.Errorf("open with page %d of %d destroyed = %v, want %v", at/page+1, len(sound)/page, err, kine.ErrDamaged)
		}
	}
}

// D1: a store that turns out damaged while it serves stops serving.
func TestDamageFoundWhileServingEndsTheServing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	write(t, path, soundStore(t, 2000))
	s := openAt(t, path)
	watch := s.Client().Watch(t.Context(), "/registry/a")
	garble(t, path, 100)
	_, err := s.Client().Kubernetes.List(t.Context(), "/registry/", kubernetes.ListOptions{})
	if err == nil {
		t.Fatal("a list across destroyed pages succeeded")
	}
	if strings.Contains(err.Error(), path) {
		t.Errorf("a tenant gets to read %q", err)
	}
	if _, err := s.Client().Kubernetes.Get(t.Context(), "/registry/none", kubernetes.GetOptions{}); err == nil {
		t.Error("a damaged store still serves reads")
	}
	if _, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/none", nil, 0, kubernetes.PutOptions{}); err == nil {
		t.Error("a damaged store still takes writes")
	}
	if _, err := s.Stats(t.Context()); !errors.Is(err, kine.ErrDamaged) || !strings.Contains(err.Error(), path) {
		t.Errorf("stats = %v, want %v with the path", err, kine.ErrDamaged)
	}
	for range watch { // it ends; else the test runs into its deadline
	}
}

// D1, B15: a large store, too, is checked before it is served: never by halves.
func TestDamageToALargeStoreIsFoundBeforeItServes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	write(t, path, soundStore(t, 1))
	for i := range 70 {
		execSQL(t, path, fmt.Sprintf("INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) VALUES ('/registry/large/%d', 1, 0, 0, 0, 0, zeroblob(1<<20))", i))
	}
	s := openAt(t, path)
	stats, err := s.Stats(t.Context())
	if err != nil || stats.FileBytes < 70<<20 || stats.UsedBytes < 70<<20 {
		t.Errorf("stats of a sound store = %+v, %v", stats, err)
	}
	closeStore(t, s)
	// A page in the midst of a large value, of which the start reads nothing: the check alone can find it.
	b := read(t, path)
	write(t, path, garbled(b, len(b)/2/page*page, page))
	s, err = kine.Open(t.Context(), kine.Options{Path: path})
	if err == nil {
		closeStore(t, s)
	}
	if !errors.Is(err, kine.ErrDamaged) {
		t.Errorf("open = %v, want %v", err, kine.ErrDamaged)
	}
}

// soundStore is the file of a store with some objects.
func soundStore(t *testing.T, objects int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s := openAt(t, path)
	for i := range objects {
		rev := create(t, s, fmt.Sprintf("/registry/pods/default/%d", i), strings.Repeat("x", 1500))
		if i%10 == 0 {
			put(t, s, fmt.Sprintf("/registry/pods/default/%d", i), strings.Repeat("y", 6000), rev)
		}
	}
	closeStore(t, s)
	return read(t, path)
}

func garbled(b []byte, at, n int) []byte {
	b = bytes.Clone(b)
	random := rand.New(rand.NewPCG(1, uint64(at)))
	for i := at; i < at+n; i++ {
		b[i] = byte(random.Uint32())
	}
	return b
}

// garble destroys the pages of a file from the given one to its end, in place.
func garble(t *testing.T, path string, from int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	size := int(must(f.Seek(0, 2)))
	b := garbled(make([]byte, size-from*page), 0, size-from*page)
	if _, err := f.WriteAt(b, int64(from*page)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func execSQL(t *testing.T, path, stmt string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err == nil {
		_, err = db.Exec(stmt)
	}
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// contents of a directory by name, but for the lock, which stays.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range entries {
		switch {
		case strings.HasSuffix(e.Name(), ".lock"):
		case e.IsDir():
			out[e.Name()] = "directory"
		default:
			out[e.Name()] = string(read(t, filepath.Join(dir, e.Name())))
		}
	}
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
