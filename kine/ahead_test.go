// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-dev/berth/kine"
)

// D1, D5: what was found to be sound a moment ago isn't read again, even if the file was moved. It is if the file has changed since, when it is
// opened for the second time, if something was found, and if the examination was given up.
func TestAStoreThatWasExaminedAheadIsReadOnce(t *testing.T) {
	sound := soundStore(t, 60)
	damaged := garbled(sound, 3*page, page)
	at := time.Now().Add(-time.Hour)
	volume := kine.NewVolume(t.TempDir())
	ended, end := context.WithCancel(t.Context())
	end()
	for name, c := range map[string]struct {
		before, after []byte
		later         time.Duration // by which the time of modification of after is later
		ctx           context.Context
		change        func(t *testing.T, path string)
		want          error
	}{
		"as it was":            {before: sound, after: damaged}, // so that a second look would find something
		"changed":              {before: sound, after: damaged, later: time.Nanosecond, want: kine.ErrDamaged},
		"of another size":      {before: sound, after: append(bytes.Clone(damaged), make([]byte, page)...), want: kine.ErrDamaged},
		"damaged when it came": {before: damaged, after: damaged, want: kine.ErrDamaged},
		"given up":             {before: sound, after: damaged, ctx: ended, want: kine.ErrDamaged},
		"opened again": {before: sound, after: damaged, want: kine.ErrDamaged, change: func(t *testing.T, path string) {
			if store, err := kine.Open(t.Context(), kine.Options{Path: path, Volume: volume}); err != nil || store.Close() != nil {
				t.Fatal(err)
			}
		}},
		"another file": {before: sound, after: damaged, want: kine.ErrDamaged, change: func(_ *testing.T, path string) {
			must(0, os.Rename(path, path+".first"))
		}},
		"with a log": {before: sound, after: damaged, want: kine.ErrDamaged, change: func(t *testing.T, path string) {
			write(t, path+"-wal", []byte("a log"))
		}},
	} {
		t.Run(name, func(t *testing.T) { // one after the other, as only two are examined ahead at a time
			arrived, path := filepath.Join(t.TempDir(), "arrived.db"), filepath.Join(t.TempDir(), "store.db")
			write(t, arrived, c.before)
			must(0, os.Chtimes(arrived, at, at))
			examine, ctx := volume.ExamineAhead(arrived), c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			examine(ctx)
			must(0, os.Rename(arrived, path))
			put := func() {
				write(t, path, c.after)
				must(0, os.Chtimes(path, at, at.Add(c.later)))
			}
			put()
			if c.change != nil {
				c.change(t, path)
				put()
			}
			store, err := kine.Open(t.Context(), kine.Options{Path: path, Volume: volume})
			if err == nil {
				_ = store.Close()
			}
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// D1, D5: who opens a store that is being examined waits for the end of that.
func TestAStoreThatIsBeingExaminedIsOpenedAfterwards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	volume := kine.NewVolume(filepath.Dir(path))
	write(t, path, soundStore(t, 60))
	examine := volume.ExamineAhead(path)
	opened := make(chan error)
	go func() {
		store, err := kine.Open(t.Context(), kine.Options{Path: path, Volume: volume})
		if err == nil {
			err = store.Close()
		}
		opened <- err
	}()
	until(t, func() bool { // it takes the lock, and waits
		_, err := os.Stat(path + ".lock")
		return err == nil
	})
	select {
	case err := <-opened:
		t.Errorf("it was opened before the end of the examination: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if store, err := kine.Open(ctx, kine.Options{Path: path, Volume: volume}); !errors.Is(err, kine.ErrInUse) {
		t.Errorf("meanwhile, another process gets %v, %v", store, err)
	}
	examine(t.Context())
	if err := <-opened; err != nil {
		t.Error(err)
	}
}
