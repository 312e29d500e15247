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

// Limits of a connection, as upstream's API server has them.
const (
	readHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second
	maxHeaderBytes    = 1 << 20
	maxStreams        = 100 // requests under way at once on one HTTP/2 connection

	// drainPatience is how long a stop waits for requests under way. Watches
	// would go on for ever.
	drainPatience = 3 * time.Second
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

// Serve begins to serve handler on listener with certificate. Clients are asked
// for a certificate, which is not verified here: each space's API server trusts
// another authority.
func Serve(listener net.Listener, certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	return newServer(certificate, handler, logger).serve(listener)
}

func newServer(certificate Certificate, handler http.Handler, logger logr.Logger) *Server {
	return &Server{
		http: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: readHeaderTimeout,
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
			ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
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

// Done is closed when the server has ended, by Stop or by itself.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err tells, once Done is closed, why the server ended by itself.
func (s *Server) Err() error { return s.err }

// Stop takes no new requests, gives those under way a few seconds, at most until
// ctx ends, and closes the connections. Upgraded ones are their handlers'.
func (s *Server) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainPatience)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	<-s.done
}
