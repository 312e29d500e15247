// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// S3: a file system that doesn't respond holds nobody up for longer than the context of a call.
func TestACallOfADirectoryEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	bucket, err := Open("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	replica := bucket.Replica("demo")
	stream := Stream{Store: "0123456789abcdef", Run: "01234567"}
	path := filepath.Join(dir, filepath.FromSlash(replica.key(segmentName(stream, 1))))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil { // opening it waits for somebody who writes to it
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := replica.Rows(ctx, stream, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for { // so that the call that was given up ends
		end, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
		if err == nil {
			_ = end.Close()
			break
		}
		if !errors.Is(err, unix.ENXIO) {
			t.Fatal(err)
		}
	}
}

func TestAnArchiveEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, storeFile)
	if err := os.WriteFile(store, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := pack(ctx, &bytes.Buffer{}, ID{Space: "demo"}, store, dir, false); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// D1: a segment that was not complete when a process ended doesn't stay in the bucket.
func TestAnIncompleteFileOfADirectoryIsRemoved(t *testing.T) {
	dir := t.TempDir()
	bucket, err := Open("file://" + dir)
	if err != nil {
		t.Fatal(err)
	}
	space := filepath.Join(dir, replicasDir, "demo")
	if err := os.MkdirAll(space, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{"old": 2 * abandoned, "young": time.Minute} {
		path := filepath.Join(space, newFile+name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	if histories, err := bucket.Replica("demo").Histories(t.Context()); err != nil || len(histories) != 0 {
		t.Errorf("the replica has %+v (%v)", histories, err)
	}
	if left, err := os.ReadDir(space); err != nil || len(left) != 1 || left[0].Name() != newFile+"young" {
		t.Errorf("left are %v (%v)", left, err)
	}
}
