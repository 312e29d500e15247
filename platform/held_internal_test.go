// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/berth-dev/berth/platform/peers"
)

// T9: strangers don't take the places of a space's own clients while it moves.
func TestHostileStrangersLeavePlacesForClients(t *testing.T) {
	traffic, h := &peers.Traffic{}, &held{}
	release := traffic.Hold(t.Context(), "moved")
	waiting := make(chan struct{}, 4096)
	again := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	var group sync.WaitGroup
	send := func(known bool, status chan<- int) {
		wait, _ := traffic.Enter("moved", false)
		handler := h.until(func(ctx context.Context) bool {
			waiting <- struct{}{}
			return wait(ctx)
		}, func(*http.Request) bool { return known }, again)
		group.Go(func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/version", nil))
			status <- w.Code
		})
	}
	const flood, own = 2000, 500
	strangers, clients := make(chan int, flood), make(chan int, own)
	for range flood {
		send(false, strangers)
	}
	for range flood - maxHeldStrangers { // the others don't wait for the end of the move
		if code := <-strangers; code != http.StatusServiceUnavailable {
			t.Errorf("a stranger got %d", code)
		}
	}
	for range own {
		send(true, clients)
	}
	for range maxHeldStrangers + own {
		<-waiting
	}
	release()
	group.Wait()
	for range own {
		if code := <-clients; code != http.StatusAccepted {
			t.Errorf("a client got %d", code)
		}
	}
}
