// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// maxAhead is how many files are examined ahead at the same time. Each takes a processor.
	maxAhead = 2
	// aheadFor is how long the result counts: the file may be opened from the same pages in memory until then.
	aheadFor = time.Minute
)

// Examinations are those of files before they are opened. A file is known by its inode, as it may be moved in between. The zero value is
// ready. It is safe for concurrent use.
type Examinations struct {
	mu sync.Mutex
	of []*examination
}

// examination is that of a file by [Examinations.Ahead].
type examination struct {
	file os.FileInfo // as it was before
	// The rest is set when done is closed.
	done  chan struct{}
	ended time.Time
	sound bool // nothing was found
}

// hasEnded reports whether the examination has ended.
func (e *examination) hasEnded() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// Ahead returns a function that examines the file of a store before it is opened, so that the next Examine of that file doesn't read all of it
// again. That one waits for the end of the function, which therefore must be called, and ends with its context. The file may be
// moved meanwhile. The result doesn't count if the size or the time of modification of the file changes, or after a minute. If the file is
// damaged, Examine says so. If there is nothing to examine, or enough is being examined, the function does nothing.
func (x *Examinations) Ahead(path string) (examine func(context.Context)) {
	file, err := os.Lstat(path)
	if err != nil {
		return func(context.Context) {}
	}
	e := &examination{file: file, done: make(chan struct{})}
	if !x.add(e) {
		return func(context.Context) {}
	}
	return func(ctx context.Context) {
		defer close(e.done)
		sound := CheckWhole(ctx, path, "quick_check") == nil
		if now, err := os.Lstat(path); err == nil && !isUnchanged(file, now) {
			sound = false // it may be another file that was examined; if there is none, this one was moved
		}
		e.ended, e.sound = time.Now(), sound
	}
}

// add notes an examination that begins. It is false if enough are running.
func (x *Examinations) add(e *examination) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of = slices.DeleteFunc(x.of, func(o *examination) bool {
		return o.hasEnded() && (time.Since(o.ended) > aheadFor || os.SameFile(o.file, e.file))
	})
	running := 0
	for _, o := range x.of {
		if !o.hasEnded() {
			running++
		}
	}
	if running >= maxAhead {
		return false
	}
	x.of = append(x.of, e)
	return true
}

// find returns the last examination of a file; nil if there is none.
func (x *Examinations) find(file os.FileInfo) *examination {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, e := range slices.Backward(x.of) {
		if os.SameFile(e.file, file) {
			return e
		}
	}
	return nil
}

func (x *Examinations) remove(e *examination) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of = slices.DeleteFunc(x.of, func(o *examination) bool { return o == e })
}

// Examine is [Examine] of a file that may have been examined ahead.
func (x *Examinations) Examine(ctx context.Context, path string) error { return examine(ctx, path, x) }

// hasSound reports whether the file at path was just examined, as it is, and found to be sound. It waits for an examination that has
// begun. A result counts once.
func (x *Examinations) hasSound(ctx context.Context, path string) bool {
	if x == nil {
		return false
	}
	file, err := os.Lstat(path)
	if err != nil {
		return false
	}
	e := x.find(file)
	if e == nil {
		return false
	}
	select {
	case <-e.done:
		x.remove(e)
		return e.sound && isUnchanged(e.file, file) && time.Since(e.ended) < aheadFor
	case <-ctx.Done():
		return false
	}
}

// isUnchanged reports whether a file is the same, and nobody has written to it in between.
func isUnchanged(before, after os.FileInfo) bool {
	return os.SameFile(before, after) && before.Size() == after.Size() && before.ModTime().Equal(after.ModTime())
}
