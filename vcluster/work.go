// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"net/http"
	"time"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
)

// countWork wraps the innermost handler: a request's slot and memory are held until it has returned. Upstream's filters
// answer a request whose client has gone, or whose timeout has passed, and leave the handler running.
//
// Upstream's handlers of writes do the same to admission and validation. A client that leaves, or asks for a short
// timeout, must not be able to detach them: they get a context that ends after the server's own timeout, or with abort.
func countWork(abort context.Context, timeout time.Duration, isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, own := r.Context(), inside.Is(r.Context())
		work := bounds.WorkOf(ctx)
		if work == nil || own { // what a handler asks of its own server has its context
			work = &bounds.Work{}
			ctx = bounds.WithWork(ctx, work)
		}
		if !work.Begin() { // it was answered already
			http.Error(w, errAnswered.Error(), http.StatusServiceUnavailable)
			return
		}
		defer work.Done()
		if info, ok := apirequest.RequestInfoFrom(ctx); !own && ok && writes(r) && !isLong(r, info) {
			outlasting, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			defer context.AfterFunc(abort, cancel)()
			ctx = outlasting
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func writes(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}
