// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/syncer/hostcache"
)

// holdLag is how long a space's informers may take to show what was written.
const holdLag = 2 * time.Second

// hold is why a host object is not what the space says: requests under way have
// changed it ahead of what the space is about to store.
type hold struct {
	version  uint64 // of the virtual object: what is later, the requests conflict with
	requests int
}

// Hold keeps the syncer from undoing what a request does to a host object ahead
// of its virtual one, which has this version, until the request's ctx has ended
// and the space has had time to show what came of it. It is lost with the process,
// as the request is.
func (w *Writer) Hold(ctx context.Context, o hostcache.Object, version uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.holds[o]
	if h == nil {
		h = &hold{}
		w.holds[o] = h
	}
	h.version = max(h.version, version)
	h.requests++
	context.AfterFunc(ctx, func() { safego.AfterFunc(holdLag, "let go of an object", func() { w.release(o) }) })
}

func (w *Writer) release(o hostcache.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holds[o].requests--; w.holds[o].requests == 0 {
		delete(w.holds, o)
	}
}

// reserving reports whether a request under way, or one that ended a moment ago, has reserved a host object.
func (w *Writer) reserving(o hostcache.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds[o] != nil
}

// held reports whether a host object is ahead of its virtual one in this version.
func (w *Writer) held(o hostcache.Object, version uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.holds[o]
	return h != nil && version <= h.version
}
