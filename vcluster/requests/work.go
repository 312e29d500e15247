// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
)

// CountWork wraps the innermost handler: a request's slot and memory are held until it has returned. Upstream's filters
// answer a request whose client has gone, or whose timeout has passed, and leave the handler running.
//
// Upstream's handlers of writes do the same to admission, validation and storage. A client that leaves, or asks for a short
// timeout, must not be able to detach them: they get a context that ends after the server's own timeout, or with abort. After
// that a goroutine may be left that nothing can interrupt, such as one that matches a pattern. The slot and memory are held
// until it has ended.
func CountWork(abort context.Context, timeout time.Duration, isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, own := r.Context(), inside.Is(r.Context())
		work := bounds.WorkOf(ctx)
		if work == nil || own { // what a handler asks of its own server has its context
			work = &bounds.Work{}
			ctx = bounds.WithWork(ctx, work)
		}
		if !work.Begin() { // it was answered already
			http.Error(w, ErrAnswered.Error(), http.StatusServiceUnavailable)
			return
		}
		done := work.Done
		defer func() { done() }()
		if info, ok := apirequest.RequestInfoFrom(ctx); ok && writes(r) && !isLong(r, info) {
			begun, left := time.Now(), &leftRunning{}
			ctx = context.WithValue(ctx, leftRunningKey{}, left)
			if !own {
				ctx = WithValidation(ctx)
				outlasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
				defer cancel()
				defer context.AfterFunc(abort, cancel)()
				ctx = outlasting
			}
			defer func() {
				if ctx.Err() != nil || time.Since(begun) >= upstreamTimeout {
					done = func() { runtime.AddCleanup(left, (*bounds.Work).Done, work) }
				}
			}()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// ErrAnswered says that nobody waits for a request's work any more.
var ErrAnswered = errors.New("the request has ended; send it again")

// leftRunning is in the context of a write's handler, and so in that of a goroutine that the handler leaves behind: neither
// upstream nor the goroutine tells when it ends, but then nothing refers to its context any more.
type leftRunning struct {
	_ *byte // small values without pointers are freed together
}

type leftRunningKey struct{}

// upstreamTimeout is when upstream's handlers of writes answer at the latest, and leave behind what has not ended.
const upstreamTimeout = 34 * time.Second

func writes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}
