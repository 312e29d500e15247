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

// Limits of a connection, for clients that may be anybody.
const (
	headerTimeout = 10 * time.Second // see [Connections]
	// idleTimeout is client-go's, so that it is the client that closes.
	idleTimeout = 90 * time.Second
	// maxHeaderBytes fits the longest token (16 KiB), or a long command in the query of an exec.
	maxHeaderBytes = 64 << 10
	maxStreams     = 100 // requests under way at once on one HTTP/2 connection

	// HTTP/2 keeps what a client sends ahead of its reader: of a connection, of a stream, and of a frame. net/http bounds
	// the control frames that wait to be answered, and the streams that a client has reset.
	maxAheadConn   = 256 << 10
	maxAheadStream = 128 << 10
	maxFrame       = 16 << 10
	// A client is pinged when it has been silent, and left when it does not answer or takes no byte of what is written.
	pingAfter    = 60 * time.Second
	pingTimeout  = 15 * time.Second
	writeTimeout = 60 * time.Second

	// drainTimeout is how long a stop waits for requests under way. Watches
	// don't end by themselves.
	drainTimeout = 3 * time.Second
)

// Server serves a handler by TLS until it is stopped.
type Server struct {
	http *http.Server
	done chan struct{}
	err  error
}

// Certificate returns the certificate to serve with. It is asked at each
// handshake, so that a renewed one is used at once; connections that stand go on.
type Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// Serve begins to serve handler on listener with certificate, within
// [DefaultConnections]. Clients are asked for a certificate, which is not verified
// here: each space's API server trusts another CA.
func Serve(listener net.Listener, certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	return ServeBounded(listener, DefaultConnections(), certificate, handler, logger)
}

// ServeBounded is [Serve] within other bounds.
func ServeBounded(listener net.Listener, bounds Connections, certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	s := newServer(certificate, handler, logger)
	s.http.ReadHeaderTimeout = bounds.HeaderTimeout
	return s.serve(newHandshakes(bounds.bound(listener), addressOf))
}

func newServer(certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	return &Server{
		http: &http.Server{
			Handler:           handler,
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

func (s *Server) serve(listener *handshakes) *Server {
	go func() {
		defer close(s.done)
		if err := s.http.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
	return s
}

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err tells, once Done is closed, why the server ended by itself.
func (s *Server) Err() error { return s.err }

// Stop takes no new requests, gives those under way a few seconds, at most until
// ctx ends, and closes the connections. Upgraded ones are their handlers'.
func (s *Server) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	<-s.done
}
