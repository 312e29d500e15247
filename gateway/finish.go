// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net/http"
	"net/url"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/httpstatus"
)

// A client that uses HTTP/2 decides when it reads a response. Until then, the request remains in memory, up to maxStreams
// of them on each connection, though its handler has ended.

// maxUnread is how many refusals of a tenant's requests may be under way at once, until they are sent. Honest clients hardly have as many,
// and [http.ErrAbortHandler] tells them nothing.
const maxUnread = 2048

// fieldBytes is about what a field of a header takes besides its text.
const fieldBytes = 200

// maxHeaderFields is how many fields the header of a request may have, with the names of trailers that it announces. A short field takes
// fieldBytes, too.
const maxHeaderFields = 200

// maxHeadersConn is how many bytes of headers the requests of an HTTP/2 connection may have that are under way: as many as maxStreams of
// them with the longest token. It doesn't depend on how fast the process is, unlike what waits for the limits of the tenant.
const maxHeadersConn = 2 << 20

// unheld refuses requests with too many fields. It has handlers of others use a copy of the request, and removes from the server's own one
// what the client chooses the size of: the server refers to it until the response has been sent.
func unheld(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r); c != nil && r.ProtoMajor == 2 {
			size := headerBytes(r)
			defer c.headers.Add(-size)
			if c.headers.Add(size) > maxHeadersConn {
				panic(http.ErrAbortHandler) // a response would wait for the client, too
			}
		}
		fields := len(r.Trailer)
		for _, values := range r.Header {
			fields += len(values)
		}
		if fields > maxHeaderFields {
			closeAfter(w)
			httpstatus.Write(w, http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonBadRequest,
				fmt.Sprintf("the request has %d header fields, and may have %d; send fewer", fields, maxHeaderFields), 0)
			return
		}
		if r.ProtoMajor == 2 {
			own := r
			r = new(http.Request)
			*r = *own
			own.Header, own.URL, own.RequestURI, own.Host = nil, &url.URL{}, "", ""
		}
		next.ServeHTTP(w, r)
	})
}

// headerBytes is about what the header of a request takes.
func headerBytes(r *http.Request) int64 {
	n := len(r.RequestURI) + len(r.Host)
	for key, values := range r.Header {
		n += len(key)
		for _, value := range values {
			n += fieldBytes + len(value)
		}
	}
	for key := range r.Trailer {
		n += fieldBytes + len(key)
	}
	return int64(n)
}

// finish waits until the response has been sent, so that what counts the request counts it until then. net/http adds no Content-Length to a
// response that is sent before the handler ends.
func finish(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		_ = http.NewResponseController(w).Flush() // fails if the client has left
	}
}

// unread counts the refusals of each tenant that wait to be sent. It is safe for concurrent use.
type unread struct {
	mu sync.Mutex
	by map[string]int
}

// take reports whether the tenant may have one more. If so, give must follow.
func (u *unread) take(tenant string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[tenant] >= maxUnread {
		return false
	}
	u.by[tenant]++
	return true
}

func (u *unread) give(tenant string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[tenant]--; u.by[tenant] == 0 {
		delete(u.by, tenant)
	}
}
