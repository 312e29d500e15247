// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/berth-dev/berth/vcluster"
)

// startBerth starts a space's control plane with all the controllers a space has.
func startBerth(ctx context.Context, dir string) (*controlPlane, error) {
	p, err := vcluster.Start(ctx, vcluster.Config{
		Name:     "bench-" + filepath.Base(dir),
		Dir:      dir,
		Endpoint: "https://127.0.0.1:7443",
	})
	if err != nil {
		return nil, err
	}
	return &controlPlane{client: p.Loopback(), stop: p.Stop}, nil
}
