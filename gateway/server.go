// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// These are limits of a connection, because clients are not trusted.
const (
	headerTimeout = 10 * time.Second // see [Connections]
	// idleTimeout is that of client-go, so that the client closes first.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes allows the longest token (16 KiB), or a long command in the query of an exec.
	maxHeaderBytes = 64 << 10
	maxStreams     = 100 // concurrent requests on one HTTP/2 connection

	// HTTP/2 buffers what a client sends before it is read: these limit a connection, a stream, and a frame. A tenant may
	// have all its connections buffer as much, by bodies of watches, which nobody reads. net/http limits control frames
	// that wait for a response, and streams that a client has reset.
	maxAheadConn   = 128 << 10
	maxAheadStream = 64 << 10
	maxFrame       = 16 << 10
	// maxAheadShards is that of a connection between shards, on which requests of all tenants are: none can take the window of others.
	maxAheadShards = maxStreams * maxAheadStream
	// maxTrusted is the number of connections of shards: twice the upgraded ones of one shard to another.
	maxTrusted = 8192
	// A client that was silent is pinged, and is disconnected if it does not respond or accepts no data.
	pingAfter    = 60 * time.Second
	pingTimeout  = 15 * time.Second
	writeTimeout = 60 * time.Second

	// drainTimeout is how long a stop waits for current requests. Watches don't end by themselves.
	drainTimeout = 3 * time.Second
	// answerTimeout is how long it then waits for the answers of other shards, on which a space may have to start first. sendTimeout is how
	// long it takes at most to pass them on.
	answerTimeout, sendTimeout = 8 * time.Second, time.Second
	// answerInterval is how often it looks for answers.
	answerInterval = 20 * time.Millisecond
)

// Server serves a handler by TLS until it is stopped.
type Server struct {
	// Waiting returns how many requests wait for the answers of others. It may be set before the server stops.
	Waiting func() int

	http *http.Server
	done chan struct{}
	err  error
}

// Certificate returns the serving certificate. It is called at each handshake, so that a renewed certificate is used at
// once; existing connections continue.
type Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Serve starts to serve handler on listener, with the limits of [DefaultConnections]. Clients are asked for a
// certificate, which is not verified here, because each space's API server trusts another CA.
func Serve(listener net.Listener, certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	return ServeBounded(listener, DefaultConnections(), certificate, handler, logger)
}

// ServeBounded is [Serve] with other limits.
func ServeBounded(listener net.Listener, bounds Connections, certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	s := newServer(certificate, handler, logger)
	s.http.ReadHeaderTimeout, s.http.ConnContext = bounds.HeaderTimeout, withConn
	s.http.ConnState = func(conn net.Conn, state http.ConnState) {
		endHandshake(conn, state)
		noteIdle(conn, state)
	}
	return s.serve(bounds.bound(newHandshakes(listener, addressOf))) // so that to close a connection ends its handshake
}

func newServer(certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	return &Server{
		http: &http.Server{
			Handler:           unheld(handler),
			ReadHeaderTimeout: headerTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ConnState:         endHandshake,
			HTTP2: &http.HTTP2Config{
				MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
				MaxReceiveBufferPerConnection: maxAheadConn, MaxReceiveBufferPerStream: maxAheadStream,
				SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
			},
			ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
			TLSConfig: &tls.Config{
				MinVersion:     tls.VersionTLS12,
				GetCertificate: certificate,
				ClientAuth:     tls.RequestClientCert,
			},
		},
		done: make(chan struct{}),
	}
}

func (s *Server) serve(listener net.Listener) *Server {
	go func() {
		defer close(s.done)
		if err := s.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
	return s
}

// ServeTrusted starts to serve handler on listener to clients that config verifies, which send the requests of many clients on a connection.
// Others may connect as well: they take no place of those that have been verified, and take turns with TLS handshakes.
func ServeTrusted(listener net.Listener, config *tls.Config, handler http.Handler, logger logr.Logger) *Server {
	return serveTrusted(listener, Connections{Total: maxTrusted, PerClient: maxTrusted, HeaderTimeout: headerTimeout}, config, handler, logger)
}

func serveTrusted(listener net.Listener, bounds Connections, config *tls.Config, handler http.Handler, logger logr.Logger) *Server {
	s := newServer(nil, handler, logger)
	s.http.ReadHeaderTimeout, s.http.TLSConfig = bounds.HeaderTimeout, config
	s.http.HTTP2.MaxReceiveBufferPerConnection = maxAheadShards
	s.http.ConnState = func(conn net.Conn, state http.ConnState) {
		endHandshake(conn, state)
		holdVerified(conn, state)
		noteIdle(conn, state)
	}
	return s.serve(bounds.bound(newHandshakes(listener, addressOf)))
}

// Done returns a channel that is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns, once Done is closed, why the server ended by itself.
func (s *Server) Err() error { return s.err }

// Stop accepts no new requests, waits a few seconds for the current ones, and longer for those that wait for the answers of others, at most
// until ctx ends, and closes the connections. Upgraded connections belong to their handlers.
func (s *Server) Stop(ctx context.Context) {
	err := s.shutdown(ctx, drainTimeout)
	if err != nil && s.Waiting != nil && s.Waiting() > 0 {
		answered, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		_ = wait.PollUntilContextCancel(answered, answerInterval, false, func(context.Context) (bool, error) { return s.Waiting() == 0, nil })
		err = s.shutdown(ctx, sendTimeout)
	}
	if err != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// shutdown accepts no new requests, and fails if current ones haven't ended after limit.
func (s *Server) shutdown(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return s.http.Shutdown(ctx)
}
