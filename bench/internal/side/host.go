// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/vcluster/pki"
)

// hostProcess is the side of the embedded host cluster. It is there once it is opened; to start it is to get its kubeconfig.
type hostProcess struct {
	cluster *host.Cluster
	server  *gateway.Server
}

func openHost(ctx context.Context, dir string) (*hostProcess, error) {
	port, err := openPort(ctx, dir)
	if err != nil {
		return nil, err
	}
	cluster, err := host.Start(ctx, host.Options{
		Dir: filepath.Join(dir, "host"), ServingCA: port.ca.PEM(), Logger: klog.Background(),
		Endpoint: port.url(gateway.SystemSpace),
	})
	if err != nil {
		return nil, err
	}
	server, err := port.serve(func(string) http.Handler { return cluster.Handler() }, nil)
	if err != nil {
		return nil, errors.Join(err, cluster.Stop(context.WithoutCancel(ctx)))
	}
	return &hostProcess{cluster: cluster, server: server}, nil
}

func (h *hostProcess) Start(context.Context, string) ([]byte, error) {
	return h.cluster.ClientKubeconfig("bench", []string{pki.AdminGroup})
}

func (h *hostProcess) Stop(context.Context, string) error { return errors.ErrUnsupported }

func (h *hostProcess) Close(ctx context.Context) error {
	h.server.Stop(ctx)
	return h.cluster.Stop(ctx)
}
