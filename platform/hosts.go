// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/vcluster/pki"
)

// reachTimeout bounds the first call to a host that is not ours.
const reachTimeout = 15 * time.Second

// HostConfig says which cluster is the host.
type HostConfig struct {
	// Embedded makes a cluster of this process the host, with as many simulated nodes as Nodes says. Otherwise, the host is
	// an existing cluster: that of kubeconfig.Read, or if this is empty, the cluster that the process is a pod of.
	Embedded   bool
	Nodes      int
	Kubeconfig string
}

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

func (p *Platform) openHost(ctx context.Context) error {
	if p.config.Host.Embedded {
		return p.startHost(ctx)
	}
	return p.reachHost(ctx)
}

// reachHost makes an existing cluster the host.
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
	p.host, p.hostKubeconfig = &remoteHost{config: config}, path
	p.config.Progress("The host is %s, Kubernetes %s", config.Host, version.GitVersion)
	return nil
}

// startHost makes a cluster of this process the host, and writes the kubeconfig of its admin into the data directory.
func (p *Platform) startHost(ctx context.Context) error {
	nodes := p.config.Host.Nodes
	p.config.Progress("Starting the embedded host: Kubernetes with %d simulated nodes (no containers run) ...", nodes)
	cluster, err := host.Start(ctx, host.Options{
		Dir: datadir.Host(p.config.DataDir), Endpoint: p.Endpoint(gateway.SystemSpace),
		ServingCA: p.ca.PEM(), Nodes: nodes, Logger: p.logger,
	})
	if err != nil {
		return fmt.Errorf("start the embedded host: %w", err)
	}
	p.onStop(func(ctx context.Context) {
		if err := cluster.Stop(ctx); err != nil {
			p.logger.Error(err, "stop the embedded host")
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
	p.hostKubeconfig = p.hostFiles().kubeconfig()
	if err := p.renewHostFiles(); err != nil {
		return err
	}
	p.config.Progress("The host is ready")
	return nil
}

// hostFiles is by what the processes of dedicated spaces reach an embedded host: a kubeconfig that names files, which
// clients read anew while they run, so that a process may live for longer than a certificate.
type hostFiles struct{ dir string }

func (f hostFiles) path(name string) string { return filepath.Join(f.dir, name) }

// kubeconfig is the path of the kubeconfig.
func (f hostFiles) kubeconfig() string { return f.path("processes.kubeconfig") }

// renew writes the files if they are not there, the certificate is past half of its life, or server is another.
func (f hostFiles) renew(server string, clients, port *pki.CA) error {
	if old, err := os.ReadFile(f.path("processes.crt")); err != nil || !clients.Fresh(old) {
		client, err := clients.Client("berth-processes", []string{kubeconfig.AdminGroup})
		if err != nil {
			return err
		}
		// Whoever reads them between the two writes finds that they don't match, keeps what it has, and reads again.
		if err := pki.WriteFile(f.path("processes.key"), client.Key); err != nil {
			return fmt.Errorf("write key of processes: %w", err)
		}
		if err := pki.WriteFile(f.path("processes.crt"), client.Cert); err != nil {
			return fmt.Errorf("write certificate of processes: %w", err)
		}
	}
	config, err := pki.KubeconfigOfFiles(datadir.HostName, server, port.PEM(), "processes.crt", "processes.key") // beside it
	if err != nil {
		return err
	}
	if err := pki.WriteFile(f.kubeconfig(), config); err != nil {
		return fmt.Errorf("write kubeconfig of processes: %w", err)
	}
	return nil
}

func (p *Platform) hostFiles() hostFiles { return hostFiles{datadir.Host(p.config.DataDir)} }

// renewHostFiles renews them: any space may come to have a process.
func (p *Platform) renewHostFiles() error {
	if !p.config.Host.Embedded {
		return nil
	}
	clients, err := kubeconfig.OpenClientCA(p.config.DataDir, datadir.HostName)
	if err != nil {
		return err
	}
	return p.hostFiles().renew(p.Endpoint(gateway.SystemSpace), clients, p.ca)
}
