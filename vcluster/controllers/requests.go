// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

const (
	// controllerRate is how many requests each controller of a space makes in a second, once it has made those of ten seconds. Without
	// a limit a tenant's policy that changes what a controller writes keeps it writing, as fast as it can and without an end; so does
	// a webhook that answers with a conflict, which the controller of namespaces does not pause after.
	controllerRate = 200
	// controllerRequests is how many requests of a controller are answered at once. Some begin one for each object at the same time:
	// the garbage collector for all that a deleted owner leaves behind, the Job controller for all pods of a job that ends.
	controllerRequests = 50
	// waitingRequest is about what one takes that waits for its turn: its goroutine's stack, and what client-go made of it. No more
	// than countedRequests count, so that clients can go on meanwhile.
	waitingRequest  = 16 << 10
	countedRequests = 4096
)

// limitRequests has the requests of one controller's clients wait for their turn, but for watches. Those that wait count as the
// space's memory. Without an account, they have no rate.
func limitRequests(config *rest.Config, a *bounds.Account) *rest.Config {
	config = rest.CopyConfig(config)
	pace := rate.NewLimiter(controllerRate, 10*controllerRate)
	if a == nil {
		pace.SetLimit(rate.Inf)
	}
	turns := semaphore.NewWeighted(controllerRequests)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &limitedRequests{next: next, pace: pace, turns: turns, account: a}
	})
	return config
}

// markCollector marks requests as the garbage collector's.
func markCollector(next http.RoundTripper) http.RoundTripper { return collectorRequests{next} }

type collectorRequests struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (c collectorRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	return c.next.RoundTrip(r.WithContext(inside.MarkCollector(r.Context())))
}

type limitedRequests struct {
	next    http.RoundTripper
	pace    *rate.Limiter
	turns   *semaphore.Weighted
	account *bounds.Account
	waiting atomic.Int64
}

// RoundTrip waits for a turn, which ends with the answer.
func (l *limitedRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "true" {
		return l.next.RoundTrip(r)
	}
	if err := l.wait(r.Context()); err != nil {
		roundtrip.CloseBody(r)
		return nil, err
	}
	end := sync.OnceFunc(func() { l.turns.Release(1) })
	resp, err := l.next.RoundTrip(r)
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &roundtrip.EndingBody{ReadCloser: resp.Body, End: end}
	return resp, nil
}

func (l *limitedRequests) wait(ctx context.Context) error {
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) <= countedRequests {
		l.account.Add(bounds.MemoryBytes, waitingRequest)
		defer l.account.Give(bounds.MemoryBytes, waitingRequest)
	}
	if err := l.pace.Wait(ctx); err != nil {
		return err
	}
	return l.turns.Acquire(ctx, 1)
}
