// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/syncer/hostcache"
)

// holdLag is how long a space's informers may take to deliver a write.
const holdLag = 2 * time.Second

// hold is why a host object differs from the space's object: current requests have changed it before the space stores
// the change.
type hold struct {
	version  uint64 // of the virtual object; the requests conflict with later versions
	requests int
}

// Hold prevents that the syncer reverts a request's change to a host object whose virtual object, which has this
// version, the request is about to change. It lasts until the request's context has ended and the space has had time to
// deliver the result. It does not survive the process, and neither does the request.
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

// reserving reports whether a current or very recent request has reserved a host object.
func (w *Writer) reserving(o hostcache.Object) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.holds[o] != nil
}

// held reports whether a host object is ahead of this version of its virtual object.
func (w *Writer) held(o hostcache.Object, version uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := w.holds[o]
	return h != nil && version <= h.version
}
