// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/berth-dev/berth/control"
)

const apiSocket = "api.sock"

// Serve serves a space's API and the commands on it in dir, until ctx ends.
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
