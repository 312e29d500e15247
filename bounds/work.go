// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"context"
	"sync"
	"time"
)

// Work is all that is under way for one request. It may take longer than the request: when a deadline has passed, an API
// server answers, and does not wait for what it has started. What is counted for the request is given back at the end of
// its work. A nil Work counts nothing. It is safe for concurrent use.
type Work struct {
	mu    sync.Mutex
	parts int
	ended bool
	atEnd []func()
	// promised to the work, see [Account.Promise]
	promised map[Quantity]int64
	turns    Turns
}

// Turns is how the work of a tenant waits for that of others. Each function may be nil.
type Turns struct {
	// Take waits for the turn of a part, see [Work.Turn].
	Take func(ctx context.Context) (release func(), err error)
	// Charge counts what a processor did outside of turns, see [Work.Charge].
	Charge func(time.Duration)
	// Yield lets the work of others go on, see [Work.Yield].
	Yield func()
}

// Begin notes that a part of the work begins, and reports whether it may: not if all parts before it have ended. If so,
// Done must follow.
func (w *Work) Begin() bool {
	if w == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return false
	}
	w.parts++
	return true
}

// Done notes the end of a part. That of the last part is the end of the work.
func (w *Work) Done() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.parts--
	var atEnd []func()
	if w.parts == 0 {
		w.ended, atEnd, w.atEnd = true, w.atEnd, nil
	}
	w.mu.Unlock()
	for _, f := range atEnd {
		f()
	}
}

// AtEnd has f called once at the end of the work. It must be called between Begin and Done, and not of a nil Work.
func (w *Work) AtEnd(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.atEnd = append(w.atEnd, f)
}

// ByTurns has the work wait for that of others. It must be called before the request is served, and not of a nil Work.
func (w *Work) ByTurns(turns Turns) { w.turns = turns }

// Charge counts what a processor did for the work outside of turns.
func (w *Work) Charge(d time.Duration) {
	if w != nil && w.turns.Charge != nil {
		w.turns.Charge(d)
	}
}

// Yield is to be called again and again by work that takes long. It lets other goroutines run from time to time. In a busy process the
// work may rest, so that others meet a little of it at each time instead of all of it at once. It returns false, and does nothing, if the
// work does not wait for that of others.
func (w *Work) Yield() bool {
	if w == nil || w.turns.Yield == nil {
		return false
	}
	w.turns.Yield()
	return true
}

// Turn waits, until ctx ends, for the turn of a part that the request's own turn does not cover, such as to read what a watch begins with.
// If there is no error, release must be called at the end of the part.
func (w *Work) Turn(ctx context.Context) (release func(), err error) {
	if w == nil || w.turns.Take == nil {
		return func() {}, nil
	}
	return w.turns.Take(ctx)
}

type workKey struct{}

// WithWork returns a context of what is done for w.
func WithWork(ctx context.Context, w *Work) context.Context {
	return context.WithValue(ctx, workKey{}, w)
}

// WorkOf returns the work that a context is of, nil if it has none.
func WorkOf(ctx context.Context) *Work {
	w, _ := ctx.Value(workKey{}).(*Work)
	return w
}
