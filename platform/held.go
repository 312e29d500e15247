// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway/forward"
)

// maxHeldStrangers is how many requests without a known credential wait at most for spaces that move. They must not take the places of the
// spaces' own clients. These may be among them when a space's keys have just left this process, so that it isn't 0.
const maxHeldStrangers = 64

// held are requests that wait until their spaces have moved. It is safe for concurrent use.
type held struct{ strangers atomic.Int32 }

// until returns a handler of a request that waits, and is then routed again.
func (h *held) until(wait func(context.Context) bool, known func(*http.Request) bool, again http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.wait(r, wait, known) {
			forward.Unavailable(w)
			return
		}
		again.ServeHTTP(w, r)
	})
}

func (h *held) wait(r *http.Request, wait func(context.Context) bool, known func(*http.Request) bool) bool {
	if !known(r) {
		defer h.strangers.Add(-1)
		if h.strangers.Add(1) > maxHeldStrangers {
			return false
		}
	}
	return wait(r.Context())
}

// knows returns a function that reports whether a request has a credential of a space, or of its tenant.
func (p *Platform) knows(space string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if who, err := p.clients.Identify(r); err != nil || who != nil {
			return err == nil && (who.Tenant == v1alpha1.SystemTenant || who.Tenant != "" && who.Tenant == p.tenantOf(space))
		}
		_, ok, err := p.verify(space, r)
		return ok && err == nil
	}
}
