// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"sync"
	"testing"
	"time"
)

// D5: requests to a space that has moved here wait until it is served, in a bounded number, and not again and again if it never is.
func TestRequestsWaitForASpaceThatArrives(t *testing.T) {
	var a Arrivals
	var waiting sync.WaitGroup
	served := make(chan bool, maxHeld)
	wait := a.Wait("moved", 1)
	for range maxHeld {
		waiting.Go(func() { served <- wait(t.Context()) })
	}
	for held := 0; held < maxHeld; {
		a.mu.Lock()
		held = a.spaces["moved"].held
		a.mu.Unlock()
	}
	if a.Wait("moved", 1)(t.Context()) {
		t.Error("a request waited that is one too many")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if a.Wait("other", 1)(ended) {
		t.Error("a request of a client that went is served")
	}
	a.Served("moved")
	waiting.Wait()
	close(served)
	for is := range served {
		if !is {
			t.Error("a request was not served")
		}
	}

	a.Wait("never", 1)
	a.spaces["never"].until = time.Now()
	if a.Wait("never", 1)(t.Context()) {
		t.Error("the space is served")
	}
	again := a.Wait("never", 2)
	go a.Served("never")
	if !again(t.Context()) {
		t.Error("a request did not wait when the space had moved again")
	}
}
