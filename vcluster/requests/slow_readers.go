// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/inside"
)

const (
	// stallTime is how long a client may take nothing of an answer that waits for it.
	stallTime = time.Minute
	// stallPiece is how much of an answer it has to take in that time.
	stallPiece = 16 << 10
)

// EndStalled ends answers of which their client takes nothing: what they hold in memory is the whole space's. A watch of
// which nothing waits is left alone.
func EndStalled(c clock.WithDelayedExecution, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if inside.Is(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		watched := &stallWriter{ResponseWriter: w, clock: c}
		defer watched.end()
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(watched), r)
	})
}

// stallWriter looks, while something is being written, whether it gets anywhere. Nothing runs while nothing is.
type stallWriter struct {
	http.ResponseWriter
	clock clock.WithDelayedExecution

	mu    sync.Mutex
	since time.Time // when the write that is under way began; zero if there is none
	timer clock.Timer
	armed bool
	ended bool
}

var _ responsewriter.UserProvidedDecorator = &stallWriter{}

func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *stallWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		w.begin()
		n, err := w.ResponseWriter.Write(p[:min(len(p), stallPiece)])
		w.done()
		written += n
		if p = p[n:]; err != nil || len(p) == 0 {
			return written, err
		}
	}
}

func (w *stallWriter) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = w.clock.Now()
	w.arm(stallTime)
}

func (w *stallWriter) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

func (w *stallWriter) arm(d time.Duration) {
	switch {
	case w.armed || w.ended:
		return
	case w.timer == nil:
		w.timer = w.clock.AfterFunc(d, func() { go safego.Run("look at a slow reader", w.look, nil) }) // a clock may hold a lock meanwhile
	default:
		w.timer.Reset(d)
	}
	w.armed = true
}

// look ends the answer if the write that is under way has been for too long.
func (w *stallWriter) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.since.IsZero() || w.ended {
		return
	}
	if left := stallTime - w.clock.Since(w.since); left > 0 {
		w.arm(left)
		return
	}
	// With the lock: the writer must not be used once the handler has returned.
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
}

func (w *stallWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
