// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"net/http"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// reach records whether the host responds, whatever the response is.
type reach struct{ failure atomic.Pointer[error] }

// wrap records the results of requests through next.
func (r *reach) wrap(next http.RoundTripper) http.RoundTripper {
	return &reaching{next: next, reach: r}
}

var _ utilnet.RoundTripperWrapper = &reaching{}

type reaching struct {
	next  http.RoundTripper
	reach *reach
}

// RoundTrip implements [http.RoundTripper].
func (t *reaching) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	switch {
	case err == nil:
		t.reach.failure.Store(nil)
	case req.Context().Err() == nil: // otherwise, it was canceled
		t.reach.failure.Store(&err)
	}
	return resp, err
}

// WrappedRoundTripper implements [utilnet.RoundTripperWrapper].
func (t *reaching) WrappedRoundTripper() http.RoundTripper { return t.next }

// Reachable returns why the last request to the host got no response; nil if it got one.
func (h *Host) Reachable() error {
	if err := h.reach.failure.Load(); err != nil {
		return *err
	}
	return nil
}
