// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"testing"

	"github.com/go-logr/logr"

	"github.com/berth-dev/berth/vcluster/pki"
)

// BenchmarkHandshakes measures TLS handshakes of clients that are behind one address, such as that of a load balancer, until
// the first answer. Clients and server share the processors.
func BenchmarkHandshakes(b *testing.B) {
	ca, err := pki.OpenCA(b.TempDir(), "port")
	if err != nil {
		b.Fatal(err)
	}
	certificate, err := ca.Serving("127.0.0.1")
	if err != nil {
		b.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := Serve(listener, certificate.Get, http.NotFoundHandler(), logr.Discard())
	defer server.Stop(context.Background())
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca.PEM())
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			conn, err := tls.Dial("tcp", listener.Addr().String(), config)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: berth\r\n\r\n")); err != nil {
				b.Error(err)
			}
			if _, err := conn.Read(make([]byte, 1)); err != nil {
				b.Error(err)
			}
			_ = conn.Close()
		}
	})
}
