// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// turns lets one request after the other allocate for a service: each then sees what the one before it came to. They
// hold an entry for each service that requests under way allocate for.
type turns struct {
	mu    sync.Mutex
	taken map[types.NamespacedName]turn
}

// turn is the request that may allocate now. Contexts that are derived from a request's to carry values end with it:
// admission may see the same request again, when a webhook has changed the object or the store had another version.
type turn struct {
	request <-chan struct{} // closed when it ends
	ended   chan struct{}   // closed when the turn is free
}

// take waits until ctx's request may allocate for a service, which it may until it ends.
func (t *turns) take(ctx context.Context, service types.NamespacedName) error {
	request := ctx.Done()
	if request == nil {
		return nil // never ends, so that nobody could ever follow it
	}
	for {
		t.mu.Lock()
		now, busy := t.taken[service]
		if !busy {
			if t.taken == nil {
				t.taken = map[types.NamespacedName]turn{}
			}
			t.taken[service] = turn{request, make(chan struct{})}
			context.AfterFunc(ctx, func() { t.give(service) })
		}
		t.mu.Unlock()
		if !busy || now.request == request {
			return nil
		}
		select {
		case <-now.ended:
		case <-request:
			return ctx.Err()
		}
	}
}

func (t *turns) give(service types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.taken[service].ended)
	delete(t.taken, service)
}
