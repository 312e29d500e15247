// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	apiserverproxy "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/transport"
	v1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/podhttp"
)

const (
	// upgrading is how long a server may take to say that a connection is upgraded: it
	// outlives the client's request from the start.
	upgrading = 30 * time.Second
	// insideTimeout is how long the control plane itself waits for an answer.
	insideTimeout = 10 * time.Second
)

// server is what answers for one API service.
type server struct {
	spec      v1.APIServiceSpec // with a service; not changed
	resolve   func(namespace, name string, port int32) (*url.URL, error)
	transport *http.Transport
	upgrades  *http.Transport // of HTTP/1.1, which alone has them
	available atomic.Bool
	ended     context.Context
	end       context.CancelFunc
	announced bool // to discovery; only one worker works on an API service
}

// newServer answers for s, as soon as its status says that it can.
func newServer(c *Config, s *v1.APIService) (*server, error) {
	spec := *s.Spec.DeepCopy()
	trusted := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           spec.Service.Name + "." + spec.Service.Namespace + ".svc",
		InsecureSkipVerify:   spec.InsecureSkipTLSVerify, //nolint:gosec // as the tenant asks, of its own pods
		GetClientCertificate: c.Certificate,
	}
	if len(spec.CABundle) > 0 {
		trusted.RootCAs = x509.NewCertPool()
		if !trusted.RootCAs.AppendCertsFromPEM(spec.CABundle) {
			return nil, errors.New("spec.caBundle holds no certificate")
		}
	}
	made := &server{spec: spec, resolve: c.Resolve, transport: &http.Transport{
		DialContext:     c.Dial,
		TLSClientConfig: trusted,
		// What a server compresses a client may have: nobody here unpacks it.
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
	}}
	podhttp.Bound(made.transport)
	made.upgrades = podhttp.Upgrading(made.transport)
	made.upgrades.ResponseHeaderTimeout = upgrading
	made.ended, made.end = context.WithCancel(context.Background())
	made.available.Store(helper.IsAPIServiceConditionTrue(s, v1.Available))
	return made, nil
}

// close ends connections that were upgraded, and lets other requests in flight end.
func (s *server) close() {
	s.end()
	s.transport.CloseIdleConnections()
	s.upgrades.CloseIdleConnections()
}

// location is the URL of a path of one of the service's pods.
func (s *server) location(path string) (*url.URL, error) {
	to, err := s.resolve(s.spec.Service.Namespace, s.spec.Service.Name, *s.spec.Service.Port)
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: "https", Host: to.Host, Path: path}, nil
}

// as returns a transport whose requests are made in the name of u.
func as(u user.Info, through *http.Transport) http.RoundTripper {
	return transport.NewAuthProxyRoundTripper(u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra(), through)
}

// ServeHTTP passes a client's request on.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.available.Load() {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	by, ok := request.UserFrom(r.Context())
	if !ok {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	forwarded := noRedirect
	if inside.Is(r.Context()) {
		if follows(r) {
			http.Error(w, "the control plane itself does not follow what pods serve", http.StatusMethodNotAllowed)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), insideTimeout)
		defer cancel()
		r, forwarded = r.WithContext(ctx), inward
	}
	location, err := s.location(r.URL.Path)
	if err != nil {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location.RawQuery = r.URL.Query().Encode()

	asked, cancel := apiserverproxy.NewRequestForProxy(location, r)
	defer cancel()
	if inside.Is(r.Context()) {
		asked.Header.Set("Accept", jsonOf(asked.Header.Get("Accept")))
	}
	through := s.transport
	if httpstream.IsUpgradeRequest(r) {
		// It outlives what a request may take, and ends with the server.
		ctx, end := context.WithCancel(context.WithoutCancel(asked.Context()))
		defer end()
		defer context.AfterFunc(s.ended, end)()
		asked, through = asked.WithContext(ctx), s.upgrades
	}
	// Not upstream's handler, which reads pages of HTML whole, to rewrite them, and the
	// header of an upgrade however long it is.
	h := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.Out.URL = location; p.SetXForwarded() },
		Transport:      as(by, through),
		FlushInterval:  -1,
		ModifyResponse: forwarded,
		ErrorHandler:   unavailable,
		ErrorLog:       log.New(io.Discard, "", 0), // tenants make them fail as often as they like
	}
	h.ServeHTTP(finalWriter{w}, asked)
}

// finalWriter passes the answer itself on, and not what goes before, as "continue": those
// that count how long a request takes would take that for the answer.
type finalWriter struct{ http.ResponseWriter }

func (w finalWriter) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(code)
	}
}

// Unwrap is for [http.ResponseController].
func (w finalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

var errRedirect = errors.New("the backend attempted to redirect this request, which is not permitted")

func noRedirect(r *http.Response) error {
	if r.StatusCode >= 300 && r.StatusCode < 400 && r.Header.Get("Location") != "" {
		return errRedirect
	}
	return nil
}

// unavailable answers for a server that can't be reached, as upstream's aggregator does.
func unavailable(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusServiceUnavailable
	if errors.Is(err, errRedirect) {
		code = http.StatusBadGateway
	}
	http.Error(w, err.Error(), code)
}

// follows tells whether a request is one of those of who keeps what there is, for as
// long as it runs, by a watch or by lists of which each says from where it goes on; of
// those who compile what servers say of their types, where each may name any other
// any number of times; or a connection.
func follows(r *http.Request) bool {
	info, ok := request.RequestInfoFrom(r.Context())
	query := r.URL.Query()
	return ok && info.Verb == "watch" || slices.ContainsFunc([]string{"watch", "continue", "limit", "resourceVersion"}, query.Has) ||
		strings.HasPrefix(r.URL.Path, "/openapi/") || httpstream.IsUpgradeRequest(r)
}

// get asks for a path in the name of u, for the control plane itself. It does
// not follow redirects.
func (s *server) get(ctx context.Context, u user.Info, path string, header http.Header) (*http.Response, error) {
	location, err := s.location(path)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	if header != nil {
		r.Header = header.Clone()
	}
	resp, err := as(u, s.transport).RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("failing or missing response from %s: %w", location, err)
	}
	return resp, nil
}
