// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Gate stands before the API server's handler, so that a stop can refuse new
// requests, end the running ones, and know when the last has returned.
type Gate struct {
	next  atomic.Pointer[http.Handler] // nil until open
	calls *Latch

	// Drain ends long-running requests, abort ends all.
	Drain, Abort       context.Context
	startDrain, cancel context.CancelFunc
}

// New returns a gate that is closed until Open.
func New() *Gate {
	g := &Gate{calls: NewLatch()}
	g.Drain, g.startDrain = context.WithCancel(context.Background())
	g.Abort, g.cancel = context.WithCancel(context.Background())
	return g
}

// ErrStopping is the answer to requests that come too late.
var ErrStopping = errors.New("the API server is stopping")

// Open lets requests through to next.
func (g *Gate) Open(next http.Handler) { g.next.Store(&next) }

func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.Enter() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, ErrStopping.Error(), http.StatusServiceUnavailable)
		return
	}
	defer g.Leave()
	g.Serve(w, r)
}

// Enter reports whether a request may go on. If so, leave must follow.
func (g *Gate) Enter() bool { return g.next.Load() != nil && g.calls.Enter() }

// Leave notes that a request that entered has ended.
func (g *Gate) Leave() { g.calls.Leave() }

// Serve must be called between enter and leave.
func (g *Gate) Serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	cut := make(chan struct{})
	hook := context.AfterFunc(g.Abort, func() {
		defer close(cut)
		cancel()
		// A handler may be stuck where no context reaches, in a read or write
		// of a connection whose client does nothing. Not every writer can do
		// this; those that can't have no connection.
		c := http.NewResponseController(w)
		_ = c.SetWriteDeadline(time.Now())
		_ = c.SetReadDeadline(time.Now())
	})
	defer func() {
		if !hook() {
			<-cut // w must not be used when its handler has returned
		}
	}()
	(*g.next.Load()).ServeHTTP(w, r.WithContext(ctx))
}

// Close refuses requests, ends watches and the like, gives the other requests
// in flight some time, and returns when all have returned.
func (g *Gate) Close(timeout time.Duration) {
	empty := g.calls.Close()
	g.startDrain()
	timer := time.AfterFunc(timeout, g.cancel)
	defer timer.Stop()
	<-empty
	g.cancel()
}

// EndLongRunning wraps the innermost handler so that watches and the like end
// as soon as the control plane begins to stop: clients see the end of the
// stream and come again.
func (g *Gate) EndLongRunning(isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if ok && isLong(r, info) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(g.Drain, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
