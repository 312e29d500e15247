// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/clientaddr"
)

// handshakeServer serves by TLS with turns for handshakes, to clients that are all one.
func handshakeServer(tb testing.TB) (server *httptest.Server, turns *turns, client string) {
	tb.Helper()
	server = httptest.NewUnstartedServer(http.NotFoundHandler())
	h := newHandshakes(server.Listener, addressOf)
	h.turns.pace = nil // what else the machine does is not tested
	server.Listener, server.Config.ConnState = h, endHandshake
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	tb.Cleanup(server.Close)
	return server, h.turns, clientaddr.Of(server.Listener.Addr()).String()
}

// L3: clients take turns with handshakes, for which at most half of the processors work at once. The verification of what the
// client answers takes a turn, too: a client chooses its key, and has one of 8192 bits verified.
func TestHostileHandshakesTakeTurns(t *testing.T) {
	server, turns, client := handshakeServer(t)
	takeAll := func() (release func()) {
		release, err := turns.take(t.Context(), flow{tenant: client}, turns.share)
		if err != nil {
			t.Error(err)
		}
		return release
	}
	release := takeAll()
	config := server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.ServerName = "example.com" // of the test server's certificate
	conn := tls.Client(dial(t, server), config)
	defer conn.Close()
	// It is called when the server has answered for the first time, and the client has not.
	config.VerifyConnection = func(tls.ConnectionState) error {
		release = takeAll()
		return nil
	}
	handshake := make(chan error)
	go func() { handshake <- conn.Handshake() }()
	await(t, turns, "the client's hello takes no turn", func() bool { return len(turns.waiting) > 0 })
	release()
	if err := <-handshake; err != nil { // the client does not wait for the server to verify it
		t.Fatal(err)
	}
	await(t, turns, "the client's answer takes no turn", func() bool { return len(turns.waiting) > 0 })
	release()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: berth\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("after its turn: %v", err)
	}
	await(t, turns, "a request after the handshake has a turn", func() bool { return turns.used == 0 })

	release = takeAll()
	defer release()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: berth\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("a connection that stands waits for a turn: %v", err)
	}
}

// L3: a turn is over once the server waits for the client, and a client that leaves keeps none.
func TestHostileSilentHandshakesKeepNoTurn(t *testing.T) {
	server, turns, client := handshakeServer(t)
	silent := sayHello(t, server)
	if _, err := silent.Read(make([]byte, 1)); err != nil { // the server's part of the handshake
		t.Fatal(err)
	}
	turns.mu.Lock()
	if turns.used > 0 {
		t.Error("a client that says no more keeps its turn")
	}
	turns.mu.Unlock()
	release, err := turns.take(t.Context(), flow{tenant: client}, turns.share)
	if err != nil {
		t.Fatal(err)
	}
	leaving := sayHello(t, server)
	await(t, turns, "the client's hello takes no turn", func() bool { return len(turns.waiting) > 0 })
	if err := leaving.Close(); err != nil {
		t.Fatal(err)
	}
	release()
	await(t, turns, "a client that left keeps its turn", func() bool { return turns.used == 0 && len(turns.lines) == 0 })

	release, err = turns.take(t.Context(), flow{tenant: client}, turns.share)
	if err != nil {
		t.Fatal(err)
	}
	sayHello(t, server)
	await(t, turns, "the client's hello takes no turn", func() bool { return len(turns.waiting) > 0 })
	server.CloseClientConnections()
	await(t, turns, "a connection that was closed waits for a turn", func() bool { return len(turns.waiting) == 0 })
	release()
	await(t, turns, "a connection that was closed keeps its turn", func() bool { return turns.used == 0 && len(turns.lines) == 0 })
}

// await fails with a complaint if what it waits for is never so. done is called with the turns locked.
func await(t *testing.T, turns *turns, complaint string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		turns.mu.Lock()
		ok := done()
		turns.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatal(complaint)
}

func dial(tb testing.TB, server *httptest.Server) net.Conn {
	tb.Helper()
	conn, err := (&net.Dialer{}).DialContext(tb.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// sayHello begins a handshake, and does not go on.
func sayHello(t *testing.T, server *httptest.Server) net.Conn {
	t.Helper()
	conn := dial(t, server)
	only := &firstFlight{Conn: conn}
	if err := tls.Client(only, &tls.Config{ServerName: "berth.example"}).HandshakeContext(t.Context()); !errors.Is(err, errSilent) {
		t.Fatal(err)
	}
	return conn
}

var errSilent = errors.New("no more is said")

// firstFlight is a client's connection that ends for the client as it first reads.
type firstFlight struct{ net.Conn }

func (*firstFlight) Read([]byte) (int, error) { return 0, errSilent }

// Write sends what the client says before it reads: not why it ends.
func (f *firstFlight) Write(p []byte) (int, error) {
	if p[0] == 21 { // an alert
		return len(p), nil
	}
	return f.Conn.Write(p)
}

// Close leaves the connection open.
func (*firstFlight) Close() error { return nil }
