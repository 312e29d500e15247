// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	dialTimeout = 3 * time.Second
	// pingAfter and pingTimeout are when a connection between shards that is silent is found to be dead.
	pingAfter, pingTimeout = 2 * time.Second, 3 * time.Second
	// maxAhead is how many bytes of a response, or of the body of a request, are read ahead of a slow client; maxAheadConn is that of all
	// on one connection.
	maxAhead, maxAheadConn = 64 << 10, 8 << 20
	idleTimeout            = 90 * time.Second
	// maxUpgraded is the number of upgraded connections to one shard, as of exec. Each space has a lower limit of its own.
	maxUpgraded = 4096
)

// callers is the name of all shards as clients of each other.
const callers = "berth-shard"

// serverName is the name of a shard in its certificate.
func serverName(shard string) string { return shard + ".shard.berth.dev" }

// Forwarder forwards requests to other shards. It is safe for concurrent use.
type Forwarder struct {
	ca     *pki.CA
	client *pki.Calling
	locate func(shard string) (address string, err error)
	logger logr.Logger

	waiting atomic.Int64 // see Waiting

	mu     sync.Mutex
	shards map[string]*httputil.ReverseProxy
}

// New returns a forwarder to the shards that have certificates of ca. locate returns HOST:PORT of a shard; its error says why it can't be
// reached. It is asked again for each connection.
func New(ca *pki.CA, locate func(shard string) (address string, err error), logger logr.Logger) *Forwarder {
	return &Forwarder{ca: ca, client: ca.Calling(callers), locate: locate, logger: logger, shards: map[string]*httputil.ReverseProxy{}}
}

// To returns a handler that forwards requests to a shard. A request that has been forwarded too often is answered as one to a space that
// is being moved.
func (f *Forwarder) To(shard string) http.Handler {
	proxy := f.proxy(shard)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hopsOf(r.Context()) >= maxHops {
			Unavailable(w)
			return
		}
		proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, w)))
	})
}

func (f *Forwarder) proxy(shard string) *httputil.ReverseProxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	proxy := f.shards[shard]
	if proxy == nil {
		proxy = f.newProxy(shard)
		f.shards[shard] = proxy
	}
	return proxy
}

// Waiting returns how many requests, other than upgrades, have been sent to other shards, and aren't answered yet.
func (f *Forwarder) Waiting() int { return int(f.waiting.Load()) }

// Dial connects to a shard, for its commands.
func (f *Forwarder) Dial(ctx context.Context, shard string) (net.Conn, error) {
	conn, err := f.dial(ctx, shard)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, f.tls(shard))
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to shard %s: %w", shard, err), conn.Close())
	}
	return secured, nil
}

func (f *Forwarder) dial(ctx context.Context, shard string) (net.Conn, error) {
	address, err := f.locate(shard)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", address)
}

func (f *Forwarder) tls(shard string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: serverName(shard), GetClientCertificate: f.client.Get,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies, by the CA of that moment
		VerifyConnection: func(state tls.ConnectionState) error {
			options := f.ca.Verify(x509.ExtKeyUsageServerAuth)
			options.DNSName = serverName(shard)
			if _, err := state.PeerCertificates[0].Verify(options); err != nil {
				return fmt.Errorf("verify shard %s: %w", shard, err)
			}
			return nil
		},
	}
}

func (f *Forwarder) newProxy(shard string) *httputil.ReverseProxy {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return f.dial(ctx, shard) }
	// A transport of HTTP/2 adds its protocol to its configuration, so that each has one of its own.
	forUpgrades, forRequests := f.tls(shard), f.tls(shard)
	forUpgrades.NextProtos = []string{"http/1.1"}

	// Upgrades need a connection of their own, which HTTP/2 doesn't have.
	upgrades := &http.Transport{
		DialContext: dial, TLSClientConfig: forUpgrades, TLSHandshakeTimeout: dialTimeout, DisableCompression: true, MaxConnsPerHost: maxUpgraded,
		Protocols: new(http.Protocols),
	}
	upgrades.Protocols.SetHTTP1(true)
	requests := &http.Transport{
		DialContext: dial, TLSClientConfig: forRequests, TLSHandshakeTimeout: dialTimeout, DisableCompression: true, IdleConnTimeout: idleTimeout,
		Protocols: new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: maxAhead, MaxReceiveBufferPerConnection: maxAheadConn, SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		},
	}
	requests.Protocols.SetHTTP2(true)
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "https", serverName(shard), r.In.Host
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} { // as without a shard between
				if values := r.In.Header[name]; values != nil {
					r.Out.Header[name] = values
				}
			}
			if readsNoBody(r.In) {
				r.Out.Body, r.Out.ContentLength = http.NoBody, 0
			}
			mark(r.Out.Header, r.In)
		},
		FlushInterval:  -1, // needed for watches
		Transport:      byUpgrade{upgrades: upgrades, requests: requests, waiting: &f.waiting},
		ModifyResponse: noteAnswer,
		ErrorHandler:   func(w http.ResponseWriter, r *http.Request, err error) { f.failed(w, r, shard, err) },
		ErrorLog:       slog.NewLogLogger(logr.ToSlogHandler(f.logger), slog.LevelDebug),
	}
}

// readsNoBody reports whether nobody reads the body of a request, which would take memory in the other shard as long as the request lasts.
// Only what Services and pods serve may read that of a GET.
func readsNoBody(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.Contains(r.URL.Path, "/proxy")
}

// byUpgrade is the transport of a shard.
type byUpgrade struct {
	upgrades, requests http.RoundTripper
	waiting            *atomic.Int64
}

// RoundTrip implements [http.RoundTripper].
func (t byUpgrade) RoundTrip(r *http.Request) (*http.Response, error) {
	if httpstream.IsUpgradeRequest(r) {
		return roundTrip(t.upgrades, r)
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	return roundTrip(t.requests, r)
}
