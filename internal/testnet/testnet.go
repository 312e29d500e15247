// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testnet has what tests of several packages need of the loopback interface.
package testnet

import (
	"net"
	"testing"
)

// tries is how often a port may be taken already by the other protocol.
const tries = 20

// Listen takes a port of the loopback interface by UDP and by TCP: whoever has it
// by one may not have it by the other. The caller closes both.
func Listen(t *testing.T) (udp net.PacketConn, tcp net.Listener) {
	t.Helper()
	var c net.ListenConfig
	var last error
	for range tries {
		tcp, err := c.Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if udp, last = c.ListenPacket(t.Context(), "udp4", tcp.Addr().String()); last == nil {
			return udp, tcp
		}
		_ = tcp.Close()
	}
	t.Fatalf("no port is free by UDP and TCP: %v", last)
	return nil, nil
}
