// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/internal/httpstatus"
)

// unprocessed is the beginning of the error of net/http for a request that the other side has certainly not processed, by HTTP/2, and that
// it can't send again by itself because it has no copy of the body.
const unprocessed = "http2: Transport: cannot retry err ["

// errNotSent means that the other shard has nothing of a request.
var errNotSent = errors.New("the request was not sent")

// roundTrip sends a request. The error is [errNotSent] if there was no connection for it.
func roundTrip(transport http.RoundTripper, r *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }}
	response, err := transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil && !connected.Load() {
		err = fmt.Errorf("%w: %w", errNotSent, err)
	}
	return response, err
}

// repeatable reports whether a client may send a request again that has failed: because the other shard has not processed it, or because
// that makes no difference.
func repeatable(r *http.Request, err error) bool {
	if errors.Is(err, errNotSent) || strings.HasPrefix(err.Error(), unprocessed) {
		return true
	}
	if stream := (http2.StreamError{}); errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream {
		return true
	}
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !httpstream.IsUpgradeRequest(r)
}

// failed ends a request that got no response from the other shard. Clients of Kubernetes repeat what is answered with [Unavailable],
// whatever its method, so that a request that may have been processed gets no answer.
func (f *Forwarder) failed(w http.ResponseWriter, r *http.Request, shard string, err error) {
	if !errors.Is(err, context.Canceled) {
		f.logger.V(1).Info("Could not forward a request to another shard", "shard", shard, "reason", err.Error())
	}
	if !repeatable(r, err) {
		panic(http.ErrAbortHandler)
	}
	Unavailable(w)
}

// Unavailable answers a request to a space that can't be reached now. The client is told to try again.
func Unavailable(w http.ResponseWriter) {
	httpstatus.Write(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the shard that has the space does not answer, or the space is being moved; try again later", time.Second)
}
