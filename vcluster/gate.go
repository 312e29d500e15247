// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"net/http"
	"sync"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// gate stands before the API server's handler, so that a stop can refuse new
// requests, end the running ones, and know when the last has returned.
type gate struct {
	next http.Handler

	// drain ends long-running requests, abort ends all.
	drain, abort       context.Context
	startDrain, cancel context.CancelFunc

	mu     sync.RWMutex
	closed bool
	calls  sync.WaitGroup
}

func newGate() *gate {
	g := &gate{}
	g.drain, g.startDrain = context.WithCancel(context.Background())
	g.abort, g.cancel = context.WithCancel(context.Background())
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !g.enter() {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the API server is stopping", http.StatusServiceUnavailable)
		return
	}
	defer g.calls.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.abort, cancel)()
	g.next.ServeHTTP(w, r.WithContext(ctx))
}

func (g *gate) enter() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.calls.Add(1)
	return true
}

// close refuses requests from now on.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// wait returns when every request that was let in has returned. Call close
// first.
func (g *gate) wait() { g.calls.Wait() }

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
