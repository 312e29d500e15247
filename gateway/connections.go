// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Connections limits the connections of a public server. A client that uses HTTP/2 needs one connection, and one more
// for each upgraded request (exec, port forwarding).
type Connections struct {
	// Total is the maximum number of connections. To accept a further one, the server closes one of the client that has
	// most.
	Total int
	// PerClient is the maximum number for a client: an IPv4 address or a /64 of IPv6 until a request has proved whose a
	// connection is, and the tenant after that. Of an address, the oldest makes place for a further one. Of a tenant, the
	// one that has been idle for longest does; if none is idle, the request on the further one is refused. One user of a
	// tenant may have seven eighths of them.
	PerClient int
	// HeaderTimeout limits the TLS handshake, and then the headers of each request.
	HeaderTimeout time.Duration
}

// DefaultConnections returns the limits of the gateway. An idle connection takes about 50 KiB. One whose client sends what
// nobody reads takes up to 512 KiB.
func DefaultConnections() Connections {
	return Connections{Total: 4096, PerClient: 1024, HeaderTimeout: headerTimeout}
}

// perUser is how many of a tenant's connections one user may have: one in userReserve is for others.
func (c Connections) perUser() int { return max(1, c.PerClient*(userReserve-1)/userReserve) }

func (c Connections) bound(l net.Listener) net.Listener { return &boundListener{l, newPlaces(c)} }

type boundListener struct {
	net.Listener
	places *places
}

// Accept implements [net.Listener].
func (l *boundListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &boundConn{Conn: conn, places: l.places}
	if closing := l.places.take(c, addressOf(conn)); closing != nil {
		_ = closing.Conn.Close()
	}
	return c, nil
}

// boundConn is a connection that has a place.
type boundConn struct {
	net.Conn
	places *places
	place  place // of places
	// headers is how many bytes of headers the connection's requests have that are under way.
	headers atomic.Int64
}

// Close implements [net.Conn].
func (c *boundConn) Close() error {
	c.places.give(c)
	return c.Conn.Close()
}

// boundOf returns the connection with a place below another one; nil if there is none.
func boundOf(c net.Conn) *boundConn {
	for {
		switch at := c.(type) {
		case *boundConn:
			return at
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return nil
		}
	}
}

// noteIdle implements [http.Server.ConnState].
func noteIdle(conn net.Conn, state http.ConnState) {
	if c := boundOf(conn); c != nil && (state == http.StateIdle || state == http.StateActive) {
		c.places.note(c, state == http.StateIdle)
	}
}

// holdVerified implements [http.Server.ConnState] for a server that verifies its clients in the TLS handshake. All of them together are a
// tenant.
func holdVerified(conn net.Conn, state http.ConnState) {
	secure, ok := conn.(*tls.Conn)
	if !ok || state != http.StateActive || !secure.ConnectionState().HandshakeComplete {
		return
	}
	if c := boundOf(conn); c != nil {
		if closing, _ := c.places.hold(c, flow{tenant: "verified"}); closing != nil { // an error leaves it a stranger's
			_ = closing.Conn.Close()
		}
	}
}

type connKey struct{}

// withConn implements [http.Server.ConnContext].
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, boundOf(conn))
}

// connOf returns the connection of a request; nil if it is of a server without places.
func connOf(r *http.Request) *boundConn {
	c, _ := r.Context().Value(connKey{}).(*boundConn)
	return c
}

// hold makes the connection of a request that of a user of a tenant, as the request has proved. The error is [errConnections].
func hold(r *http.Request, who flow) error {
	if note, ok := r.Context().Value(holderKey{}).(func(string)); ok {
		note(strconv.Itoa(int(who.user)) + " " + who.tenant)
		return nil
	}
	c := connOf(r)
	if c == nil {
		return nil
	}
	closing, err := c.places.hold(c, who)
	if closing != nil {
		_ = closing.Conn.Close()
	}
	return err
}

type holderKey struct{}

// WithHolder returns the context of a request whose client is connected to another process. note gets whose that connection is, for
// [HoldFor] there.
func WithHolder(ctx context.Context, note func(holder string)) context.Context {
	return context.WithValue(ctx, holderKey{}, note)
}

// HoldFor makes the connection of a request that of a holder, as another process has found. It fails if the holder has as many as it may
// have, or is none.
func HoldFor(r *http.Request, holder string) error {
	user, tenant, _ := strings.Cut(holder, " ")
	number, err := strconv.ParseUint(user, 10, 8)
	if err != nil {
		return fmt.Errorf("the holder of a connection is %q: %w", holder, err)
	}
	return hold(r, flow{tenant: tenant, user: uint8(number)})
}
