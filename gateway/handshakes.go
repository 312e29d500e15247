// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"runtime"
	"time"

	"github.com/berth-dev/berth/internal/clientaddr"
	"github.com/berth-dev/berth/internal/safego"
)

// handshakeLease is how long at most a TLS handshake counts as one that is worked on, which takes half of it. After that it
// waits for its client.
const handshakeLease = 2 * time.Millisecond

// handshakes has clients take turns with TLS handshakes. A client that opens many connections at once would otherwise have as
// many goroutines wait for a processor, and all requests behind them.
type handshakes struct {
	turns *turns
	// client is whose turn it is.
	client func(hello *tls.ClientHelloInfo) string
}

// newHandshakes lets half of the processors work for one client at once.
func newHandshakes(client func(*tls.ClientHelloInfo) string) handshakes {
	processors := runtime.GOMAXPROCS(0)
	return handshakes{newTurns(processors, max(1, processors/2)), client}
}

// addressOf is the client that a connection comes from, as [Connections] tells clients apart.
func addressOf(hello *tls.ClientHelloInfo) string {
	return clientaddr.Of(hello.Conn.RemoteAddr()).String()
}

// begin waits for a client's turn. It is for [tls.Config.GetConfigForClient].
func (h handshakes) begin(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	ctx, cancel := context.WithTimeout(hello.Context(), headerTimeout)
	defer cancel()
	release, err := h.turns.take(ctx, h.client(hello), 1)
	if err != nil {
		return nil, err
	}
	safego.AfterFunc(handshakeLease, "end a handshake's turn", release)
	return nil, nil
}
