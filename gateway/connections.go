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

// Connections bounds the connections of a server that anybody can reach. A client speaks HTTP/2 and needs one, whatever it
// does; what upgrades (exec, port forwarding) takes one more.
type Connections struct {
	// Total is how many there may be at once. Further ones wait in the system's queue.
	Total int
	// PerClient is how many an IPv4 address, or a /64 of IPv6, may have of them. Further ones are closed. Behind a load
	// balancer that hides its clients' addresses, all clients are one.
	PerClient int
	// HeaderTimeout bounds the TLS handshake, and then each request's headers.
	HeaderTimeout time.Duration
}

// DefaultConnections are for a gateway whose clients' addresses are seen, or that has few of them. One costs some 64 KiB.
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

// Close implements [net.Conn].
func (c *boundConn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() { c.clients.Give(c.client) })
	return err
}
