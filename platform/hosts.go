// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostproxy"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/vcluster/pki"
)

// reachTimeout limits the first request to an existing host cluster.
const reachTimeout = 15 * time.Second

// HostConfig says which cluster is the host.
type HostConfig struct {
	// Embedded runs the host cluster in this process, with Nodes simulated nodes. Otherwise, the host is the existing
	// cluster of kubeconfig.Read, or, if that is empty, the cluster in which the process runs as a pod.
	Embedded   bool
	Nodes      int
	Kubeconfig string
}

// hostCluster is the cluster that the spaces share.
type hostCluster interface {
	Config() *rest.Config
	Handler() http.Handler // of its API; that of an existing cluster serves users of the tenant system only
	Done() <-chan struct{} // never closed for an existing cluster
	Err() error
}

// remoteHost is an existing cluster.
type remoteHost struct {
	config  *rest.Config
	handler http.Handler
}

func (h *remoteHost) Config() *rest.Config  { return h.config }
func (h *remoteHost) Handler() http.Handler { return h.handler }
func (h *remoteHost) Done() <-chan struct{} { return nil }
func (h *remoteHost) Err() error            { return nil }

func (p *Platform) openHost(ctx context.Context) error {
	if p.config.Host.Embedded {
		return p.startHost(ctx)
	}
	return p.reachHost(ctx)
}

// reachHost connects to an existing cluster as the host.
func (p *Platform) reachHost(ctx context.Context) error {
	path := p.config.Host.Kubeconfig
	config, err := process.LoadHostConfig(path)
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
		return fielderror.New("host-kubeconfig", cmp.Or(path, "(in cluster)"), "the host %s cannot be reached: %w", config.Host, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	handler, err := hostproxy.New(config, p.logger)
	if err != nil {
		return err
	}
	p.host = &remoteHost{config, handler}
	p.config.Progress("The host is %s, Kubernetes %s", config.Host, version.GitVersion)
	return nil
}

// startHost starts a cluster in this process as the host, and writes the kubeconfig of its admin into the data
// directory.
func (p *Platform) startHost(ctx context.Context) error {
	nodes := p.config.Host.Nodes
	p.config.Progress("Starting the embedded host: Kubernetes with %d simulated nodes (no containers run) ...", nodes)
	cluster, err := host.Start(ctx, host.Options{
		Dir: datadir.Host(p.config.DataDir), Endpoint: p.Endpoint(gateway.SystemSpace),
		ServingCA: p.ca.PEM(), Nodes: nodes, Granted: &p.hostGrants, Logger: p.logger,
	})
	if err != nil {
		return fmt.Errorf("start the embedded host: %w", err)
	}
	p.onStop(func(ctx context.Context) {
		if err := cluster.Stop(ctx); err != nil {
			p.logger.Error(err, "Could not stop the embedded host in order")
		}
	})
	p.host = cluster
	config, err := cluster.ClientKubeconfig(kubeconfig.AdminUser, []string{pki.AdminGroup})
	if err != nil {
		return fmt.Errorf("make kubeconfig of the host: %w", err)
	}
	if err := pki.WriteFile(datadir.Kubeconfig(p.config.DataDir, datadir.HostName), config); err != nil {
		return fmt.Errorf("write kubeconfig of the host: %w", err)
	}
	p.config.Progress("The host is ready")
	return nil
}

// hostAddress returns the address at which processes of this machine reach the host, and its CA.
func (p *Platform) hostAddress() (*clientcmdapi.Cluster, error) {
	if p.config.Host.Embedded {
		return &clientcmdapi.Cluster{Server: p.Endpoint(gateway.SystemSpace), CertificateAuthorityData: p.ca.PEM()}, nil
	}
	return clusterOf(p.host.Config())
}

// clusterOf returns the cluster of a configuration, without credentials.
func clusterOf(config *rest.Config) (*clientcmdapi.Cluster, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("read the CA of the host: %w", err)
	}
	cluster := &clientcmdapi.Cluster{
		Server: config.Host, TLSServerName: config.ServerName, InsecureSkipTLSVerify: config.Insecure, CertificateAuthorityData: config.CAData,
	}
	if config.Proxy == nil {
		return cluster, nil
	}
	request, err := http.NewRequest(http.MethodGet, config.Host, nil)
	if err != nil {
		return nil, fmt.Errorf("read the address of the host: %w", err)
	}
	proxy, err := config.Proxy(request)
	if err != nil {
		return nil, fmt.Errorf("read the proxy of the host: %w", err)
	}
	if proxy != nil {
		cluster.ProxyURL = proxy.String()
	}
	return cluster, nil
}
