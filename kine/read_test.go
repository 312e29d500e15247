// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/sqlite"
)

// Z5: current values are read from a store that is open, closed, or was left with a log, and what was deleted is not.
func TestReadReturnsWhatIsInAStoreNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := kine.Open(t.Context(), kine.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "/registry/a/one", "1", create(t, s, "/registry/a/one", "old"))
	for key, value := range map[string]string{"/registry/a/two": "2", "/registry/a/large": strings.Repeat("x", 100), "/registry/a-b/other": "x", "/registry/b/other": "x"} {
		create(t, s, key, value)
	}
	remove(t, s, "/registry/a/gone", create(t, s, "/registry/a/gone", "x"))
	check := func(how, path string) {
		t.Helper()
		values, err := sqlite.Read(context.Background(), path, "/registry/a/", 50, 10)
		var got []string
		for _, v := range values {
			got = append(got, string(v))
		}
		if err != nil || !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("%s: %q, %v", how, got, err)
		}
	}
	check("open", path)
	left := filepath.Join(t.TempDir(), "store.db") // as a kill leaves it
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(left+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	check("left with a log", left)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", path)
	again, err := kine.Open(t.Context(), kine.Options{Path: left})
	if err != nil {
		t.Fatalf("after it was read: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if values, err := sqlite.Read(t.Context(), filepath.Join(t.TempDir(), "none"), "/registry/a/", 50, 10); err == nil {
		t.Errorf("of no store: %q", values)
	}
}
