// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"io"
	"net/http"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bounds"
)

const (
	// controllerRequests is how many requests of a controller are answered at once. Some begin one for each object at the same time:
	// the garbage collector for all that a deleted owner leaves behind, the Job controller for all pods of a job that ends.
	controllerRequests = 50
	// waitingRequest is about what one takes that waits for its turn: its goroutine's stack, and what client-go made of it.
	waitingRequest = 16 << 10
)

// limitInFlight has a client's requests wait for their turn. Those that wait count as the space's memory. Watches don't wait.
func limitInFlight(config *rest.Config, a *bounds.Account) *rest.Config {
	config = rest.CopyConfig(config)
	turns := semaphore.NewWeighted(controllerRequests)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &inFlight{next, turns, a} })
	return config
}

type inFlight struct {
	next    http.RoundTripper
	turns   *semaphore.Weighted
	account *bounds.Account
}

// RoundTrip waits for a turn, which ends with the answer.
func (f *inFlight) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return f.next.RoundTrip(r)
	}
	f.account.Add(bounds.MemoryBytes, waitingRequest)
	err := f.turns.Acquire(r.Context(), 1)
	f.account.Give(bounds.MemoryBytes, waitingRequest)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	end := sync.OnceFunc(func() { f.turns.Release(1) })
	resp, err := f.next.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = endingBody{resp.Body, end}
	return resp, nil
}

// endingBody is an answer with which a turn ends.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
