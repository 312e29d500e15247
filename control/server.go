// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
)

// Name is the name of the socket in a data directory.
const Name = "control.sock"

const (
	readHeaderTimeout = 10 * time.Second
	maxHeaderBytes    = 1 << 20 // like upstream's API server
)

// Server serves a control socket until it is stopped.
type Server struct {
	path string
	http *http.Server
	end  context.CancelFunc // ends the current requests
	done chan struct{}
}

// Serve serves handler on a socket at path. It replaces a socket that an earlier process left there. The caller must
// make sure that no other process serves it.
func Serve(path string, handler http.Handler, logger logr.Logger) (*Server, error) {
	listener, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on control socket %s: %w", path, err)
	}
	ctx, end := context.WithCancel(context.Background())
	s := &Server{path: path, end: end, done: make(chan struct{}), http: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
	}}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error(err, "Stopped serving the control socket", "path", path)
		}
	}()
	return s, nil
}

// Stop removes the socket, ends the current requests, and waits for them until ctx ends.
func (s *Server) Stop(ctx context.Context) {
	_ = os.Remove(s.path)
	s.end()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close()
	}
	<-s.done
}

// listen creates the socket in a private directory, and moves it to its path when its mode is set. So the socket is
// never open to other users, and replaces a stale one in one step.
func listen(path string) (net.Listener, error) {
	private, err := os.MkdirTemp(filepath.Dir(path), ".control-") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, Name)
	address, release, err := shorten(made)
	if err != nil {
		return nil, err
	}
	defer release()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // Stop removes it, but only if it is still this server's
	err = os.Chmod(made, 0o600)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
