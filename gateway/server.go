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
	// A client that was silent is pinged, and is disconnected if it does not respond or accepts no data.
	pingAfter    = 60 * time.Second
	pingTimeout  = 15 * time.Second
	writeTimeout = 60 * time.Second

	// drainTimeout is how long a stop waits for current requests. Watches don't end by themselves.
	drainTimeout = 3 * time.Second
)

// Server serves a handler by TLS until it is stopped.
type Server struct {
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

// Done returns a channel that is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns, once Done is closed, why the server ended by itself.
func (s *Server) Err() error { return s.err }

// Stop accepts no new requests, waits a few seconds for the current ones, at most until ctx ends, and closes the
// connections. Upgraded connections belong to their handlers.
func (s *Server) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	<-s.done
}
