// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podhttp bounds what HTTP servers in a space's pods, which its tenant
// chooses, can have this process hold, wait for or do. It is called by vcluster, for
// the proxies of pods and services, and by aggregation, for API services. What
// answers themselves may be is theirs to bound.
package podhttp

import (
	"crypto/tls"
	"net/http"
	"time"
)

// MaxHeader is how many bytes the header of an answer may have.
const MaxHeader = 64 << 10

const (
	// idle is how long a connection is kept that nobody uses: each to a pod is a stream on the host.
	idle = 20 * time.Second
	// handshake bounds what a server may take for it.
	handshake = 10 * time.Second
	// What HTTP/2 lets a server send before anybody reads, on a stream and in all.
	maxUnread, maxUnreadAll = 256 << 10, 1 << 20
	// ping is after how long of silence a connection is tried, and pong when it is given
	// up then: as upstream has them, see apimachinery's SetTransportDefaults.
	ping, pong = 30 * time.Second, 15 * time.Second
)

// Bound sets the bounds of a transport that nobody uses yet.
func Bound(t *http.Transport) {
	t.IdleConnTimeout, t.TLSHandshakeTimeout = idle, handshake
	t.MaxResponseHeaderBytes = MaxHeader
	t.HTTP2 = &http.HTTP2Config{
		MaxReceiveBufferPerStream: maxUnread, MaxReceiveBufferPerConnection: maxUnreadAll,
		SendPingTimeout: ping, PingTimeout: pong,
	}
}

// Upgrading returns a transport like t, with connections of its own, for requests to
// upgrade these: HTTP/1.1 alone has them.
func Upgrading(t *http.Transport) *http.Transport {
	t = t.Clone()
	t.ForceAttemptHTTP2, t.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
	if t.TLSClientConfig != nil {
		t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return t
}
