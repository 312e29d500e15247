// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/safego"
)

const (
	apiSocket = "api.sock"

	dialTimeout       = 5 * time.Second
	readHeaderTimeout = 10 * time.Second
	maxHeaderBytes    = 1 << 20 // like upstream's API server
)

// Serve serves a space's API, and the commands about it, in dir until ctx ends.
func Serve(ctx context.Context, dir string, api, commands http.Handler, logger logr.Logger) error {
	for name, handler := range map[string]http.Handler{apiSocket: identified(api), control.Name: commands} {
		server, err := control.Serve(filepath.Join(dir, name), handler, logger)
		if err != nil {
			return err
		}
		defer server.Stop(context.WithoutCancel(ctx))
	}
	<-ctx.Done()
	return nil
}

// ServeTLS serves a space's API, and the commands about it, over TCP until ctx ends. config is the result of
// [ServerTLS]: the client certificate in the header is trusted because only the platform can connect.
func ServeTLS(ctx context.Context, at Addresses, config *tls.Config, api, commands http.Handler, logger logr.Logger) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer end()
	failed := make(chan error, 2)
	for address, handler := range map[string]http.Handler{at.API: identified(api), at.Commands: commands} {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("listen for the platform on %s: %w", address, err)
		}
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: readHeaderTimeout, MaxHeaderBytes: maxHeaderBytes,
			BaseContext: func(net.Listener) context.Context { return life },
			ErrorLog:    slog.NewLogLogger(logr.ToSlogHandler(logger), slog.LevelDebug),
		}
		safego.Go(&serving, "serve the platform", func() {
			if err := server.Serve(tls.NewListener(listener, config)); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serve the platform on %s: %w", address, err)
			}
		}, nil)
		defer func() { _ = server.Close() }()
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}
