// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/internal/yield"
)

const (
	// partLease is how long at most a part of an answer counts as one that is written. After that it waits for its client.
	partLease = 10 * time.Millisecond
	// partWait is how long a part waits for its turn. Then it is written anyway: whoever ends a request, because its space
	// sleeps or its client is slow, can't end this wait.
	partWait = time.Second
)

// partsWriter has the parts of a long answer take turns once its request's own turn is over. Fifty watches that are sent all
// objects, or that one change wakes, would otherwise wait for a processor all at once, and other spaces' requests behind them.
type partsWriter struct {
	http.ResponseWriter

	ctx   context.Context
	long  bool        // whether the request's own turn is over once the answer begins
	end   func()      // ends the request's own turn; it may be called more than once
	over  atomic.Bool // that turn
	turn  func(ctx context.Context) (release func(), err error)
	busy  func() bool // whether the space has less than its share, so that streams take turns, too
	point yield.Point
}

// Unwrap is for [http.ResponseController].
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
	w.point.Pass()
	if !w.over.Load() {
		return w.ResponseWriter.Write(part)
	}
	end, err := beginPart(w.ctx, w.turn, partLease)
	if err != nil {
		return 0, err
	}
	defer end()
	return w.ResponseWriter.Write(part)
}

// beginPart waits until a part may be written, for partWait at most. Its turn ends at end, or after lease. It fails if ctx has
// ended.
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
