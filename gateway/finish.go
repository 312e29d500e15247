// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"net/url"
	"sync"
)

// A client that uses HTTP/2 decides when it reads a response. Until then, the request remains in memory, up to maxStreams
// of them on each connection, though its handler has ended.

const (
	// maxUnread is how many refusals of a tenant's requests may wait to be read.
	maxUnread = 256
	// maxLast is how many responses may wait to be read on a connection that closes after them.
	maxLast = 10
)

// unheld has handlers use a copy of a request, and removes from the server's own one what the client chooses the size of:
// the server refers to it until the response has been read.
func unheld(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			own := r
			r = new(http.Request)
			*r = *own
			own.Header, own.URL, own.RequestURI, own.Host = nil, &url.URL{}, "", ""
		}
		next.ServeHTTP(w, r)
	})
}

// finish waits until the client reads the response, so that what counts the request counts it until then.
func finish(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 {
		_ = http.NewResponseController(w).Flush() // fails if the client has left
	}
}

// unread counts the refusals of each tenant that wait to be read. It is safe for concurrent use.
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
