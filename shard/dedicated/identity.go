// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard/credentials"
	"github.com/berth-dev/berth/vcluster/hostaccount"
)

// These headers say who the client is: its certificate, DER in base64, or the ServiceAccount of the host that the platform has
// proven it to be, as system:serviceaccount:NAMESPACE:NAME.
const (
	certificateHeader = "X-Berth-Client-Certificate"
	hostAccountHeader = "X-Berth-Host-Service-Account"
)

// identified sets the identity of requests from the headers. Only a [proxy] may be able to reach it.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoded := r.Header.Get(certificateHeader)
		r.Header.Del(certificateHeader)
		hostAccount := r.Header.Get(hostAccountHeader)
		r.Header.Del(hostAccountHeader)
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, Version: tls.VersionTLS13}
		r.RemoteAddr = "127.0.0.1:0" // a unix socket has no address, and upstream needs one
		if encoded != "" {
			der, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				http.Error(w, "client certificate: "+err.Error(), http.StatusBadRequest)
				return
			}
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				http.Error(w, "client certificate: "+err.Error(), http.StatusBadRequest)
				return
			}
			r.TLS.PeerCertificates = []*x509.Certificate{cert}
		}
		if hostAccount != "" {
			r = r.WithContext(hostaccount.With(r.Context(), hostAccount))
		}
		next.ServeHTTP(w, r)
	})
}

// maxConnections is the maximum number of connections to a process: enough for twice as many watches as a space may
// have by default. Further requests wait.
const maxConnections = 4096

// proxy forwards requests, including upgraded ones, to a space's process, with the identity of the client. A process never gets a
// token of the host: somebody who has taken it over could use it in other spaces.
func proxy(at Endpoint) (*httputil.ReverseProxy, *http.Transport) {
	transport := &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return at.api(ctx) },
		MaxIdleConnsPerHost: 64,
		MaxConnsPerHost:     maxConnections,
		DisableCompression:  true, // bytes are forwarded unchanged
		// Headers take a multiple of their size in memory, and a tenant may have taken over the process.
		MaxResponseHeaderBytes: control.MaxHeaderBytes,
	}
	return &httputil.ReverseProxy{
		// Hop-by-hop headers are removed before this is called, so a client can't remove these headers by naming them in
		// Connection.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "space", r.In.Host
			r.Out.Header.Del(certificateHeader)
			r.Out.Header.Del(hostAccountHeader)
			if name := hostaccount.From(r.In.Context()); name != "" {
				r.Out.Header.Set(hostAccountHeader, name)
			}
			if _, ok := credentials.HostTokenOf(r.In); ok {
				r.Out.Header.Del("Authorization")
			}
			if r.In.TLS != nil && len(r.In.TLS.PeerCertificates) > 0 {
				r.Out.Header.Set(certificateHeader, base64.StdEncoding.EncodeToString(r.In.TLS.PeerCertificates[0].Raw))
			}
		},
		FlushInterval: -1, // needed for watches
		Transport:     finalOnly{transport},
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { unavailable(w) },
	}, transport
}

// finalOnly drops the informational (1xx) responses of a process, because the API server sends none; the 101 of an
// upgrade is a final response. [httputil.ReverseProxy] forwards them with a trace. With a trace, [http.Transport]
// limits the headers of each, but not their number. Without a trace, their headers count as those of the final
// response.
type finalOnly struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t finalOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	return t.next.RoundTrip(r.WithContext(untraced{r.Context()}))
}

// untraced is a context without its [httptrace.ClientTrace], whose key is private.
type untraced struct{ context.Context }

// Value implements [context.Context].
func (c untraced) Value(key any) any {
	value := c.Context.Value(key)
	if _, traced := value.(*httptrace.ClientTrace); traced {
		return nil
	}
	return value
}

// unavailable responds while the process does not run. Clients retry.
func unavailable(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: "the space's process is starting; try again later", Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
	})
}
