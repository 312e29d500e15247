// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"

	"github.com/berth-dev/berth/bounds"
)

// L3: upstream's handler of a write answers when its timeout has passed, and leaves a goroutine that nothing can interrupt,
// as it validates an object. It counts until it has ended, which only shows in that nothing refers to its context any more.
func TestHostileWorkThatUpstreamLeavesBehindCounts(t *testing.T) {
	proceed, left := make(chan struct{}), make(chan struct{})
	handler := CountWork(t.Context(), time.Millisecond, filters.BasicLongRunningRequestCheck(sets.NewString(), sets.NewString()),
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() {
				defer close(left)
				<-proceed
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("the handler's context ends by %v", ctx.Err())
				}
			}()
			<-ctx.Done()
		}))
	var ended atomic.Bool
	func() { // what refers to the request is gone at the end
		work := &bounds.Work{}
		work.Begin()
		work.AtEnd(func() { ended.Store(true) })
		ctx := apirequest.WithRequestInfo(bounds.WithWork(t.Context(), work), &apirequest.RequestInfo{IsResourceRequest: true, Verb: "create"})
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
		work.Done()
	}()
	for range 10 {
		runtime.GC()
		if ended.Load() {
			t.Fatal("the work has ended, and a goroutine is under way")
		}
	}
	close(proceed)
	<-left
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		runtime.GC()
		return ended.Load(), nil
	})
	if err != nil {
		t.Errorf("the work does not end: %v", err)
	}
}

func TestWorkEndsWithItsHandler(t *testing.T) {
	handler := CountWork(t.Context(), time.Minute, filters.BasicLongRunningRequestCheck(sets.NewString(), sets.NewString()),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	work, ended := &bounds.Work{}, false
	work.Begin()
	work.AtEnd(func() { ended = true })
	ctx := apirequest.WithRequestInfo(bounds.WithWork(t.Context(), work), &apirequest.RequestInfo{IsResourceRequest: true, Verb: "create"})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
	work.Done()
	if !ended {
		t.Error("the work goes on after its handler has returned")
	}
}
