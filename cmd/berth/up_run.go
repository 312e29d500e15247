// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/vcluster/pki"
)

// up is one run of `berth up`: a platform for a person at a terminal, which
// brings a host with it if it is given none.
type up struct {
	platform
	nodes int
	out   io.Writer // what to do next
}

// startEmbedded makes a cluster of this process the host.
func (u *up) startEmbedded(ctx context.Context) error {
	u.say("Starting the embedded host: Kubernetes with %d simulated nodes (no containers run) ...", u.nodes)
	cluster, err := host.Start(ctx, host.Options{
		Dir: filepath.Join(u.options.dataDir, "host"), Endpoint: u.endpoint(gateway.SystemSpace),
		ServingCA: u.ca.PEM(), Nodes: u.nodes, Logger: u.logger,
	})
	if err != nil {
		return fmt.Errorf("start the embedded host: %w", err)
	}
	u.onStop(func(ctx context.Context) {
		if err := cluster.Stop(ctx); err != nil {
			u.logger.Error(err, "stop the embedded host")
		}
	})
	u.host, u.hostKubeconfig = cluster, kubeconfigPath(u.options.dataDir, "host")
	config, err := cluster.ClientKubeconfig("admin", []string{"system:masters"})
	if err != nil {
		return fmt.Errorf("make kubeconfig of the host: %w", err)
	}
	if err := pki.WriteFile(u.hostKubeconfig, config); err != nil {
		return fmt.Errorf("write kubeconfig of the host: %w", err)
	}
	u.say("The host is ready")
	return nil
}

func (u *up) explainUse() {
	dir, names := u.options.dataDir, slices.Concat(u.options.spaces, u.options.dedicated)
	for _, name := range names {
		fmt.Fprintf(u.out, "\nSpace %s serves at %s", name, u.endpoint(name))
	}
	fmt.Fprintf(u.out, `

  export KUBECONFIG=%s
  kubectl create deployment web --image=nginx --replicas=3
  kubectl get pods -o wide
`, kubeconfigPath(dir, names[0]))
	if u.host.Handler() != nil {
		fmt.Fprintf(u.out, `
and, as the platform's admin, see the same pods on the host:

  kubectl --kubeconfig %s get pods -A
`, kubeconfigPath(dir, "host"))
	}
	if u.options.listenHost() == "" {
		fmt.Fprintf(u.out, `
--listen=%s: the port is open on all addresses, but kubeconfigs lead to %s,
and the certificate is good on this machine only. For clients elsewhere, name in
--listen the address or host name by which they reach it.
`, u.options.listen, u.address())
	}
	fmt.Fprintf(u.out, "\nLog: %s. Stop with Ctrl-C; start again to go on.\n", filepath.Join(dir, logFile))
}
