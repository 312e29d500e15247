// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"path/filepath"

	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// endpoint goes into the spaces' kubeconfigs, which nobody uses here: the benchmark is in process, as the syncer is.
const endpoint = "https://127.0.0.1:7443"

// berth returns a starter of spaces' control planes, with all the controllers a space has. The authority of their common
// port is made here, because a process has one whatever the number of its spaces.
func berth(dir string) (starter, error) {
	ca, err := pki.OpenCA(filepath.Join(dir, "serving"), "bench")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, dir string) (*controlPlane, error) {
		p, err := vcluster.Start(ctx, vcluster.Config{
			Name:        "bench-" + filepath.Base(dir),
			Dir:         dir,
			Endpoint:    endpoint,
			ServingCA:   ca.PEM(),
			Controllers: vcluster.SpaceControllers(),
		})
		if err != nil {
			return nil, err
		}
		return &controlPlane{client: p.Loopback(), stop: p.Stop}, nil
	}, nil
}
