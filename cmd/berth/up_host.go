// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/vcluster/pki"
)

// reachTimeout bounds the first call to a host that is not ours.
const reachTimeout = 15 * time.Second

// hostCluster is the cluster that the spaces share.
type hostCluster interface {
	Config() *rest.Config
	Handler() http.Handler // nil if the cluster serves itself
	Done() <-chan struct{} // never closed for a cluster that is not ours
	Err() error
}

func (u *up) startHost(ctx context.Context) error {
	if u.options.hostKubeconfig != "" {
		return u.reachHost(ctx)
	}
	u.say("Starting the embedded host: Kubernetes with %d simulated nodes (no containers run) ...", u.options.nodes)
	cluster, err := host.Start(ctx, host.Options{
		Dir: filepath.Join(u.options.dataDir, "host"), Endpoint: u.endpoint(gateway.SystemSpace),
		ServingCA: u.ca.PEM(), Nodes: u.options.nodes, Logger: u.logger,
	})
	if err != nil {
		return fmt.Errorf("start the embedded host: %w", err)
	}
	u.onStop(func(ctx context.Context) {
		if err := cluster.Stop(ctx); err != nil {
			u.logger.Error(err, "stop the embedded host")
		}
	})
	u.host = cluster
	config, err := cluster.ClientKubeconfig("admin", []string{"system:masters"})
	if err != nil {
		return fmt.Errorf("make kubeconfig of the host: %w", err)
	}
	if err := pki.WriteFile(kubeconfigPath(u.options.dataDir, "host"), config); err != nil {
		return fmt.Errorf("write kubeconfig of the host: %w", err)
	}
	u.say("The host is ready")
	return nil
}

// remoteHost is a cluster that was there before.
type remoteHost struct{ config *rest.Config }

func (h *remoteHost) Config() *rest.Config  { return h.config }
func (h *remoteHost) Handler() http.Handler { return nil }
func (h *remoteHost) Done() <-chan struct{} { return nil }
func (h *remoteHost) Err() error            { return nil }

func (u *up) reachHost(ctx context.Context) error {
	path := u.options.hostKubeconfig
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return fmt.Errorf("--host-kubeconfig=%s: %w", path, err)
	}
	probe := rest.CopyConfig(config)
	probe.Timeout = reachTimeout
	client, err := discovery.NewDiscoveryClientForConfig(probe)
	if err != nil {
		return fmt.Errorf("--host-kubeconfig=%s: %w", path, err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("--host-kubeconfig=%s: the host %s cannot be reached: %w", path, config.Host, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	u.host = &remoteHost{config: config}
	u.say("The host is %s, Kubernetes %s", config.Host, version.GitVersion)
	return nil
}
