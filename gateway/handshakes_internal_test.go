// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/berth-dev/berth/internal/clientaddr"
)

// L3: who opens connections at once has them shaken hands with one after the other, half of the processors at most at a time.
// A turn ends by itself, so that a client that says hello and no more holds up nobody.
func TestHostileHandshakesTakeTurns(t *testing.T) {
	h := newHandshakes(addressOf)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{GetConfigForClient: h.begin}
	server.StartTLS()
	defer server.Close()
	client := clientaddr.Of(server.Listener.Addr()).String()
	busy, err := h.turns.take(t.Context(), client, h.turns.share)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan error)
	go func() {
		response, err := server.Client().Get(server.URL)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			err = response.Body.Close()
		}
		answered <- err
	}()
	h.await(t, "a handshake takes no turn", func() bool { return len(h.turns.waiting) > 0 })
	other, err := h.turns.take(t.Context(), "another client", 1)
	if h.turns.total > h.turns.share && err != nil {
		t.Errorf("another client waits: %v", err)
	}
	select {
	case err := <-answered:
		t.Errorf("without a turn it is answered: %v", err)
	default:
	}
	other()
	busy()
	if err := <-answered; err != nil {
		t.Error(err)
	}

	silent := sayHello(t, server.Listener.Addr())
	defer silent.Close()
	if _, err := silent.Read(make([]byte, 1)); err != nil { // the server's part of the handshake
		t.Fatal(err)
	}
	h.await(t, "a client that says no more keeps its turn", func() bool { return h.turns.used == 0 })
}

// await fails with a complaint if what it waits for is never so. done is called with the turns locked.
func (h handshakes) await(t *testing.T, complaint string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.turns.mu.Lock()
		ok := done()
		h.turns.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatal(complaint)
}

// sayHello begins a handshake, and does not go on.
func sayHello(t *testing.T, server net.Addr) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), server.Network(), server.String())
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() { _ = tls.Client(near, &tls.Config{ServerName: "berth.example"}).HandshakeContext(t.Context()) }()
	hello := make([]byte, 16<<10)
	n, err := far.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(hello[:n]); err != nil {
		t.Fatal(err)
	}
	return conn
}
