// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// gate stands before the API server's handler, so that a stop can refuse new
// requests, end the running ones, and know when the last has returned.
type gate struct {
	next  atomic.Pointer[http.Handler] // nil until open
	calls *latch

	// drain ends long-running requests, abort ends all.
	drain, abort       context.Context
	startDrain, cancel context.CancelFunc
}

func newGate() *gate {
	g := &gate{calls: newLatch()}
	g.drain, g.startDrain = context.WithCancel(context.Background())
	g.abort, g.cancel = context.WithCancel(context.Background())
	return g
}

// errStopping is the answer to requests that come too late.
var errStopping = errors.New("the API server is stopping")

// open lets requests through to next.
func (g *gate) open(next http.Handler) { g.next.Store(&next) }

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.enter() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
		return
	}
	defer g.leave()
	g.serve(w, r)
}

// enter reports whether a request may go on. If so, leave must follow.
func (g *gate) enter() bool { return g.next.Load() != nil && g.calls.enter() }

func (g *gate) leave() { g.calls.leave() }

// serve must be called between enter and leave.
func (g *gate) serve(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	cut := make(chan struct{})
	hook := context.AfterFunc(g.abort, func() {
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

// close refuses requests, ends watches and the like, gives the other requests
// in flight some time, and returns when all have returned.
func (g *gate) close(timeout time.Duration) {
	empty := g.calls.close()
	g.startDrain()
	timer := time.AfterFunc(timeout, g.cancel)
	defer timer.Stop()
	<-empty
	g.cancel()
}

// endLongRunning wraps the innermost handler so that watches and the like end
// as soon as the control plane begins to stop: clients see the end of the
// stream and come again.
func (g *gate) endLongRunning(isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if ok && isLong(r, info) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(g.drain, cancel)()
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
