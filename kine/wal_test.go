// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"fmt"
	"path/filepath"
	"testing"
)

// storeWithLog is a store as a kill leaves it: a file and a log with writes that the file lacks.
func storeWithLog(t *testing.T) (file, log []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	write(t, path, soundStore(t, 60))
	s := openAt(t, path)
	for i := range 10 {
		create(t, s, fmt.Sprintf("/registry/late/%d", i), "1")
	}
	file, log = read(t, path), read(t, path+"-wal")
	closeStore(t, s)
	if len(log) == 0 {
		t.Fatal("no log")
	}
	return file, log
}

func TestAStoreIsOpenedWithTheLogThatAKillOrThePowerLeft(t *testing.T) {
	file, log := storeWithLog(t)
	cases := map[string]struct {
		reason string
		log    []byte
		want   int // of the ten writes in the log
	}{
		"Whole":         {"A kill takes nothing back.", log, 10},
		"LastCommitCut": {"The power went while it was written, before it was acknowledged.", log[:len(log)-100], 9},
		"LastCommitGarbage": {
			"The same, with its blocks written out of order.", garbled(log, len(log)-2*page, page), 9},
		"Empty":      {"It was reset, and nothing was written since.", nil, 0},
		"HeaderOnly": {"The power went before the first commit.", log[:32], 0},
		"HeaderCut":  {"The power went while the log was made.", log[:20], 0},
		"Zeros":      {"The power went while the log was made, and the file system had only its length.", make([]byte, len(log)), 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			write(t, path, file)
			write(t, path+"-wal", c.log)
			s := openAt(t, path)
			got := 0
			for value(t, s, fmt.Sprintf("/registry/late/%d", got)) != "" {
				got++
			}
			if got != c.want {
				t.Errorf("%d writes are there, want %d. %s", got, c.want, c.reason)
			}
		})
	}
}
