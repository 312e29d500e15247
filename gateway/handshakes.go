// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"

	"github.com/berth-dev/berth/internal/clientaddr"
)

// handshakes makes clients take turns with TLS handshakes. Otherwise, a client that opens many connections at once
// would have as many goroutines that wait for a processor, and all requests would wait behind them. A turn covers the
// server's work: it ends when the server waits for data from the client or sends its part of the handshake, and the
// next one begins when the client has sent more.
type handshakes struct {
	net.Listener

	turns *turns
	// client returns the client of a connection.
	client func(net.Conn) string
}

// newHandshakes lets all clients together use half of the processors. Before authentication, one client may have many
// addresses. In a busy process, each client has less. [endHandshake] must be the server's ConnState.
func newHandshakes(listener net.Listener, client func(net.Conn) string) *handshakes {
	processors := runtime.GOMAXPROCS(0)
	half := max(1, processors/2)
	turns := newTurns(half, half)
	turns.pace = newHandshakePace(half, processors)
	return &handshakes{listener, turns, client}
}

// addressOf returns the client of a connection, by the rules of [Connections].
func addressOf(conn net.Conn) string { return clientaddr.Of(conn.RemoteAddr()).String() }

// Accept implements [net.Listener].
func (h *handshakes) Accept() (net.Conn, error) {
	conn, err := h.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &handshakeConn{Conn: conn, turns: h.turns, client: h.client(conn)}
	c.handshake, c.end = context.WithCancel(context.Background())
	c.received = received{Reader: conn, begin: c.begin}
	return c, nil
}

// endHandshake implements [http.Server.ConnState]. A connection becomes active when the server has read something after
// the handshake.
func endHandshake(conn net.Conn, state http.ConnState) {
	secure, ok := conn.(*tls.Conn)
	if !ok || state == http.StateNew {
		return
	}
	below := secure.NetConn()
	if bound, ok := below.(*boundConn); ok {
		below = bound.Conn
	}
	if c, ok := below.(*handshakeConn); ok {
		c.end()
		c.received.end()
	}
}

type handshakeConn struct {
	net.Conn

	turns     *turns
	client    string
	handshake context.Context // canceled when the handshake ends
	end       context.CancelFunc
	received  received
}

// NetConn returns the underlying connection.
func (c *handshakeConn) NetConn() net.Conn { return c.Conn }

func (c *handshakeConn) begin() (end func(), err error) {
	if c.handshake.Err() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.handshake, headerTimeout)
	defer cancel()
	return c.turns.take(ctx, flow{tenant: c.client}, 1)
}

// Read implements [net.Conn].
func (c *handshakeConn) Read(p []byte) (int, error) {
	n, err := c.received.Read(p)
	if c.handshake.Err() != nil { // it was closed in the meantime
		c.received.end()
	}
	return n, err
}

// Write implements [net.Conn].
func (c *handshakeConn) Write(p []byte) (int, error) {
	c.received.end()
	return c.Conn.Write(p)
}

// Close implements [net.Conn].
func (c *handshakeConn) Close() error {
	c.end()
	c.received.end()
	return c.Conn.Close()
}
