// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/vcluster/pki"
)

// Host is an embedded host cluster in a directory of its own. It has the
// admission policies for spaces' accounts, as hosts of Berth have.
type Host struct {
	*host.Cluster
	// ServingCA of the API endpoint that the host and its spaces would be reached by.
	ServingCA []byte
	dir       string
}

// Start starts one.
func Start() (*Host, error) {
	dir, err := os.MkdirTemp("", "berth-test-")
	if err != nil {
		return nil, fmt.Errorf("make a place for the host: %w", err)
	}
	h, err := start(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

func start(dir string) (*Host, error) {
	ca, err := pki.OpenCA(filepath.Join(dir, "serving"), "serving")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	cluster, err := host.Start(ctx, host.Options{
		Dir: filepath.Join(dir, "host"), Endpoint: "https://berth.example:7443/spaces/system", ServingCA: ca.PEM(),
	})
	if err != nil {
		return nil, err
	}
	admin, err := client.New(cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err == nil {
		err = isolation.InstallPolicies(ctx, admin, resources.SyncOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Stop(ctx))
	}
	return &Host{Cluster: cluster, ServingCA: ca.PEM(), dir: dir}, nil
}

// Close stops it and leaves nothing behind.
func (h *Host) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	return errors.Join(h.Stop(ctx), os.RemoveAll(h.dir))
}
