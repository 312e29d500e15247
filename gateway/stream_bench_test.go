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
)

// BenchmarkStreams measures what turns cost a connection that its handler has taken over: in chunks as exec and port forwarding
// send them, and in the small ones of a terminal, one after the other.
func BenchmarkStreams(b *testing.B) {
	for name, size := range map[string]int{"32KiB": 32 << 10, "64B": 64} {
		b.Run(name, func(b *testing.B) {
			b.Run("without", func(b *testing.B) { echo(b, size, func(h http.Handler) http.Handler { return h }) })
			b.Run("turns", func(b *testing.B) {
				l := NewLimiter(LimiterConfig{})
				echo(b, size, func(h http.Handler) http.Handler { return l.limit("a", "", nil, h) })
			})
		})
	}
}

// echo has chunks sent back by a server, by TLS.
func echo(b *testing.B, size int, limit func(http.Handler) http.Handler) {
	server := httptest.NewTLSServer(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, struct{ io.Reader }{conn})
	})))
	defer server.Close()
	plain, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	client := tls.Client(plain, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}) // of the test
	defer client.Close()
	if _, err := io.WriteString(client, "POST /api/v1/namespaces/x/pods/y/portforward HTTP/1.1\r\nHost: berth\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
	chunk := make([]byte, size)
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := client.Write(chunk); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(client, chunk); err != nil {
			b.Fatal(err)
		}
	}
}
