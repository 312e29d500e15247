// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/httpstatus"
	"github.com/berth-dev/berth/shard/credentials"
)

// These headers say who the client is: its certificate, DER in base64, or the identity that the gateway has proved, JSON in base64.
const (
	certificateHeader = "X-Berth-Client-Certificate"
	identityHeader    = "X-Berth-Identity"
)

// identified sets the identity of requests from the headers. Only a [proxy] may be able to reach it.
func identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoded := r.Header.Get(certificateHeader)
		r.Header.Del(certificateHeader)
		proven := r.Header.Get(identityHeader)
		r.Header.Del(identityHeader)
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
		if proven != "" {
			who := &identity.Identity{}
			if err := decodeIdentity(proven, who); err != nil {
				http.Error(w, "identity: "+err.Error(), http.StatusBadRequest)
				return
			}
			r = r.WithContext(identity.With(r.Context(), who))
		}
		next.ServeHTTP(w, r)
	})
}

func encodeIdentity(who *identity.Identity) string {
	data, _ := json.Marshal(who) // strings only
	return base64.StdEncoding.EncodeToString(data)
}

func decodeIdentity(encoded string, who *identity.Identity) error {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, who)
}

// maxConnections is the maximum number of connections to a process: enough for twice as many watches as a space may
// have by default. Further requests wait.
const maxConnections = 4096

// proxy forwards requests, including upgraded ones, to a space's process, with the identity of the client. A process never gets a
// credential that is good in other spaces: somebody who has taken the process over could use it there.
func proxy(at Endpoint) (*httputil.ReverseProxy, *http.Transport) {
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := at.api(ctx)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errNotSent, err)
			}
			return conn, nil
		},
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
			r.Out.Header.Del(identityHeader)
			// The transport asks for the body again when it knows that it has written nothing, because the process had closed the
			// connection. With one of these headers, it would also ask, and repeat a request, after it has written something.
			r.Out.Header.Del("Idempotency-Key")
			r.Out.Header.Del("X-Idempotency-Key")
			r.Out.GetBody = func() (io.ReadCloser, error) { return nil, errNotSent }
			who := identity.From(r.In.Context())
			if _, ok := credentials.HostTokenOf(r.In); ok || who != nil {
				r.Out.Header.Del("Authorization")
			}
			if who != nil {
				r.Out.Header.Set(identityHeader, encodeIdentity(who))
				return // a certificate that it has isn't of the space
			}
			if r.In.TLS != nil && len(r.In.TLS.PeerCertificates) > 0 {
				r.Out.Header.Set(certificateHeader, base64.StdEncoding.EncodeToString(r.In.TLS.PeerCertificates[0].Raw))
			}
		},
		FlushInterval: -1, // needed for watches
		Transport:     finalOnly{transport},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			refused := apierrors.APIStatus(nil)
			switch {
			case errors.As(err, &refused): // by whoever reads the body before the process, which never gets all of it
				status := refused.Status()
				httpstatus.Write(w, int(status.Code), status.Reason, status.Message, 0)
			case repeatable(r, err):
				unavailable(w)
			default:
				panic(http.ErrAbortHandler)
			}
		},
	}, transport
}

// errNotSent means that the process has nothing of a request.
var errNotSent = errors.New("the request was not sent")

// repeatable reports whether a client may send a request again that has failed. Clients of Kubernetes repeat what is answered with 503,
// whatever its method, so that one that the process may have done gets no answer.
func repeatable(r *http.Request, err error) bool {
	return errors.Is(err, errNotSent) || (r.Method == http.MethodGet || r.Method == http.MethodHead) && !httpstream.IsUpgradeRequest(r)
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
	httpstatus.Write(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the space's process is starting; try again later", time.Second)
}
