// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ServerTLS returns the TLS configuration of the port at which a shard serves the others.
func ServerTLS(ca *pki.CA, shard string) (*tls.Config, error) {
	serving, err := ca.Serving(serverName(shard))
	if err != nil {
		return nil, fmt.Errorf("issue the certificate of shard %s: %w", shard, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: serving.Get, ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			client := state.PeerCertificates[0]
			if _, err := client.Verify(ca.Verify(x509.ExtKeyUsageClientAuth)); err != nil {
				return fmt.Errorf("verify the shard that connects: %w", err)
			}
			if client.Subject.CommonName != callers {
				return fmt.Errorf("the client is %q, want %s", client.Subject.CommonName, callers)
			}
			return nil
		},
	}, nil
}

// Received returns a handler of requests from other shards. next gets those of clients, as these sent them, and commands gets the shards'
// own, which no client can have forwarded.
func Received(next, commands http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(hopsHeader) == "" {
			commands.ServeHTTP(w, r)
			return
		}
		original, err := received(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		original = original.WithContext(gateway.WithHolder(original.Context(), func(holder string) { w.Header().Set(holderHeader, holder) }))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(&receivedWriter{ResponseWriter: w}), original)
	})
}

// receivedWriter tells the forwarding shard when to close the connection of a client. By itself, net/http would close that of the shards.
type receivedWriter struct {
	http.ResponseWriter
	began bool
}

// Unwrap implements [responsewriter.UserProvidedDecorator].
func (w *receivedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *receivedWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.begin()
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *receivedWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

func (w *receivedWriter) begin() {
	if w.began {
		return
	}
	w.began = true
	if header := w.Header(); strings.EqualFold(header.Get("Connection"), "close") {
		header.Del("Connection")
		header.Set(closeHeader, "true")
	}
}
