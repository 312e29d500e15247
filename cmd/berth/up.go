// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/shard"
)

func newUp() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a host cluster and spaces on this machine",
		Long: `Run a host cluster and spaces on this machine. Nothing else needs to be installed. The
command runs until you interrupt it. When you start it again with the same --data-dir,
all spaces continue.

Spaces:
  A Space object on the host defines a space. 'berth up' serves the Space objects whose
  spec.platformName equals --platform-name. Use 'kubectl apply' to create and change
  spaces, and 'kubectl delete' to delete them. Other spaces aren't interrupted. At each
  start, Berth applies the spaces of --space, --dedicated, and --config as such objects.
  If you remove a space from these flags or from the file, its object remains until you
  delete it.

Tenants:
  A Tenant object on the host has owners and spaces, and others may be below it. The
  operator in this process creates the space of each tenant's name. It creates the
  tenant "default", too. With --operator=false, Berth serves Space objects only.

Host:
  By default, the host is an embedded Kubernetes control plane with simulated nodes:
  pods are scheduled and report as running, but no container starts. With
  --host-kubeconfig, the host is a cluster that you have, and Berth has the rights of
  the kubeconfig's current context.

Sleep:
  Berth puts a space to sleep when it has received no request for --idle-after, or for
  the time in its spec.sleep. It stops the space's API server and controllers; the pods
  continue to run. The next request wakes the space and is answered when the space is
  awake. Changes to its host objects and its own timers, such as the next run of a
  CronJob, wake it, too. Only requests with credentials of the space count, except those
  of clients in spec.sleep.ignoredClients. Watches, exec, and logs count while they are
  open.

Memory:
  At most --spaces-max shared spaces are awake at once. At this limit, Berth puts the
  space that has been idle longest to sleep. If all are in use, the next space waits.
  Plan 16 MiB of memory for each awake space, and more for a space with many objects.

Dedicated spaces:
  A dedicated space has a process of its own. When you change spec.isolation, the space
  moves with its data. The log of its process is in DATA-DIR/dedicated/SPACE.`,
		Example: `  berth up
  berth up --space team-a,team-b --idle-after 5m
  berth up --space team-a --data-dir /var/lib/berth --listen 127.0.0.1:8443
  berth up --host-kubeconfig ~/.kube/config
  kubectl --kubeconfig ~/.berth/host.kubeconfig apply -f examples/space.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer shard.TuneGC()()
			o.Host.Embedded = o.Host.Kubeconfig == ""
			config, err := o.config()
			if err != nil {
				return err
			}
			logs, err := openLogs(o.DataDir, o.verbosity)
			if err != nil {
				return err
			}
			defer logs.close()
			started := time.Now()
			config.Logger, config.RequireOne = logs.logger, true
			config.Progress = func(format string, args ...any) {
				fmt.Fprintf(cmd.ErrOrStderr(), "[%5.1fs] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
			}
			config.Started = func(p *platform.Platform) { explainUse(cmd.OutOrStdout(), &config, p.Endpoint) }
			return flags.Error(platform.New(config).Run(cmd.Context()))
		},
	}
	cmd.SetUsageFunc(groupedUsage)
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:7443", "HOST:PORT on which the API servers of all spaces listen with TLS; kubeconfigs contain HOST")
	cmd.Flags().StringSliceVar(&o.spaces, "space", []string{"demo"}, "names of spaces to create if they don't exist, in addition to those of --config and of the host")
	cmd.Flags().StringVar(&o.Host.Kubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster (default: an embedded control plane with simulated nodes)")
	cmd.Flags().BoolVar(&o.Operator, "operator", true, "serve Tenant objects: run the operator in this process")
	cmd.Flags().IntVar(&o.Host.Nodes, "nodes", 3, "number of simulated nodes of the embedded host")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "log level of DATA-DIR/berth.log, 0 to 10")
	return cmd
}
