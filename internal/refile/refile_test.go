// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package refile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/refile"
)

// A version that is wrong is parsed once, and what was read before stays.
func TestAFileIsParsedOnceForEachVersion(t *testing.T) {
	path, parsed, held := filepath.Join(t.TempDir(), "file"), 0, ""
	f := &refile.File{Path: path, MaxBytes: 10, Remedy: "shorten it", Parse: func(data []byte) error {
		parsed++
		if string(data) == "wrong" {
			return errors.New("it is wrong")
		}
		held = string(data)
		return nil
	}}
	if _, err := f.Read(); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("without a file: %v", err)
	}
	at := time.Now()
	for _, step := range []struct {
		text, held, err string
		changed         bool
		parsed          int
	}{
		{"one", "one", "", true, 1}, {"one", "one", "", false, 1}, {"wrong", "one", "it is wrong", false, 2}, {"wrong", "one", "it is wrong", false, 2},
		{"far too long", "one", "it has 12 bytes, and may have 10; shorten it", false, 2}, {"two", "two", "", true, 3},
	} {
		if data, err := os.ReadFile(path); err != nil || string(data) != step.text {
			if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			at = at.Add(time.Second)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
		changed, err := f.Read()
		if changed != step.changed || held != step.held || parsed != step.parsed || (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("%q: changed %t, holds %q, parsed %d times, error %v; want %+v", step.text, changed, held, parsed, err, step)
		}
	}
}

// A file is followed, and each error is reported once.
func TestAFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := &refile.File{Path: path, MaxBytes: 10, Parse: func([]byte) error { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	failures, changes, ended := make(chan error, 10), make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(ended)
		f.Follow(ctx, func() { changes <- struct{}{} }, func(err error) { failures <- err })
	}()
	if err := <-failures; !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	<-changes
	cancel()
	<-ended
	if len(failures) > 0 || len(changes) > 0 {
		t.Errorf("%d more errors, and %d more changes", len(failures), len(changes))
	}
}
