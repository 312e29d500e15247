// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/berth-dev/berth/internal/clientaddr"
)

// Connections limits the connections of a public server. A client that uses HTTP/2 needs one connection, and one more
// for each upgraded request (exec, port forwarding).
type Connections struct {
	// Total is the maximum number of connections. Further ones wait in the system's queue.
	Total int
	// PerClient is the maximum number for an IPv4 address or a /64 of IPv6. Further connections are closed. Behind a
	// load balancer that hides its clients' addresses, all clients count as one.
	PerClient int
	// HeaderTimeout limits the TLS handshake, and then the headers of each request.
	HeaderTimeout time.Duration
}

// DefaultConnections returns limits for a gateway that sees its clients' addresses, or has few clients. A connection
// takes about 64 KiB.
func DefaultConnections() Connections {
	return Connections{Total: 4096, PerClient: 1024, HeaderTimeout: headerTimeout}
}

func (c Connections) bound(l net.Listener) net.Listener {
	return &boundListener{Listener: netutil.LimitListener(l, c.Total), clients: clientaddr.NewCounter(c.Total, c.PerClient)}
}

type boundListener struct {
	net.Listener
	clients *clientaddr.Counter
}

// Accept implements [net.Listener].
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		client := clientaddr.Of(c.RemoteAddr())
		if l.clients.Take(client) {
			return &boundConn{Conn: c, clients: l.clients, client: client}, nil
		}
		_ = c.Close()
	}
}

type boundConn struct {
	net.Conn
	clients *clientaddr.Counter
	client  netip.Prefix
	closed  sync.Once
}

// Close implements [net.Conn]. It gives the client its place back first: as soon as the connection is closed, another one that waits is
// accepted, and must find a place.
func (c *boundConn) Close() error {
	c.closed.Do(func() { c.clients.Give(c.client) })
	return c.Conn.Close()
}
