// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
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

// remoteHost is a cluster that was there before.
type remoteHost struct{ config *rest.Config }

func (h *remoteHost) Config() *rest.Config  { return h.config }
func (h *remoteHost) Handler() http.Handler { return nil }
func (h *remoteHost) Done() <-chan struct{} { return nil }
func (h *remoteHost) Err() error            { return nil }

// reachHost makes the cluster of --host-kubeconfig the host, or that which this
// process is a pod of.
func (p *platform) reachHost(ctx context.Context) error {
	path := p.options.hostKubeconfig
	config, err := hostConfig(path)
	if err != nil {
		return err
	}
	probe := rest.CopyConfig(config)
	probe.Timeout = reachTimeout
	client, err := discovery.NewDiscoveryClientForConfig(probe)
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	version, err := client.ServerVersion()
	if err != nil {
		return fmt.Errorf("--host-kubeconfig=%s: the host %s cannot be reached: %w", cmp.Or(path, "(in cluster)"), config.Host, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.host, p.hostKubeconfig = &remoteHost{config: config}, path
	p.say("The host is %s, Kubernetes %s", config.Host, version.GitVersion)
	return nil
}

// hostConfig is by what the host is reached: a kubeconfig, or if path is empty,
// what a pod finds of its cluster.
func hostConfig(path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("this is no pod of a cluster; name one by --host-kubeconfig: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("--host-kubeconfig=%s: %w", path, err)
	}
	return config, nil
}
