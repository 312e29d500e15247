// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/internal/yield"
)

const (
	// partLease is the maximum time for which a part of a response counts as being written. After that, it waits for
	// its client.
	partLease = 10 * time.Millisecond
	// unreadLease is how long the turn of a request lasts while a client doesn't read its response. It is longer than what a processor that
	// is busy takes to write a part.
	unreadLease = 25 * time.Millisecond
	// partWait is how long a part waits for its turn. After that, it is written anyway, because the wait can't be
	// canceled when a request is ended, for example because its space goes to sleep or its client is slow.
	partWait = time.Second
)

// partsWriter makes the parts of a long response take turns after the turn of the request itself is over. Otherwise,
// fifty watches that begin with all objects, or get the same change, would compete for the processors at once, and
// other tenants' requests would wait behind them.
type partsWriter struct {
	http.ResponseWriter

	ctx   context.Context
	long  bool        // whether the request's own turn ends when the response begins
	end   func()      // ends the request's own turn; may be called more than once
	over  atomic.Bool // the request's own turn has ended
	turn  func(ctx context.Context) (release func(), err error)
	sent  func(bytes int) // if set, is told what parts after the request's own turn were
	busy  func() bool     // whether the tenant has less than its share, so that streams take turns, too
	work  *bounds.Work
	point yield.Point // after the request's own turn
}

// Unwrap is used by [http.ResponseController].
func (w *partsWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *partsWriter) WriteHeader(code int) {
	if w.long {
		w.end()
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *partsWriter) Write(part []byte) (int, error) {
	if !w.over.Load() {
		w.work.Yield()
		if w.end != nil {
			defer safego.AfterFunc(unreadLease, "end a turn", w.end).Stop()
		}
		return w.ResponseWriter.Write(part)
	}
	w.point.Pass(nil)
	end, err := beginPart(w.ctx, w.turn, partLease)
	if err != nil {
		return 0, err
	}
	defer end()
	if w.sent != nil {
		w.sent(len(part))
	}
	return w.ResponseWriter.Write(part)
}

// beginPart waits until a part may be written, at most for partWait. Its turn ends when end is called, or after lease.
// It fails if ctx has ended.
func beginPart(ctx context.Context, turn func(context.Context) (func(), error), lease time.Duration) (end func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, partWait)
	defer cancel()
	release, err := turn(waiting)
	if err != nil {
		release = func() {}
	}
	if ctx.Err() != nil {
		release()
		return nil, context.Cause(ctx)
	}
	timer := safego.AfterFunc(lease, "end a turn", release)
	return func() {
		timer.Stop()
		release()
	}, nil
}
