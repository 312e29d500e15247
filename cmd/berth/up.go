// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform"
)

func newUp() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a host cluster and spaces on this machine",
		Long: `Run everything on this machine, with nothing else installed: a host cluster,
and spaces on it.

Each Space object on the host whose spec.platformName is --platform-name is a
space. 'kubectl apply' creates and changes spaces, and 'kubectl delete' deletes them,
while the others continue. The spaces of --space, --dedicated, and --config are
applied as such objects at each start. A space that is no longer named there stays
until you delete it.

The host is an embedded Kubernetes control plane whose nodes are simulated: pods
are scheduled and report as running, but no container is started. With
--host-kubeconfig it is the real cluster of that file instead, with the rights
of its current context.

A space that has had no request from outside for --idle-after, or for the time in
its spec.sleep, is put to sleep: its API server and controllers end, its pods run
on. A request wakes it, and is answered when it has woken. Changes to its host
objects wake it, too, and its own timers, such as a CronJob's next run. Only
requests with a credential of the space count, except those of clients in
spec.sleep.ignoredClients. A watch lasts as long as it is open, as do exec and logs.

No more than --spaces-max spaces, --dedicated ones not counted, are awake at
once. At the bound, the one idle longest is put to sleep; if all are in use, the next
one waits. Reckon with 16 MiB of memory for each that is awake, and more for one
that holds much.

With --snapshot-to, snapshots of all spaces are taken as scheduled: see
'berth snapshot'.

A dedicated space has a process of its own. Change spec.isolation at any time: the
space moves with its data. The log of its process is in DATA-DIR/dedicated/SPACE.

It runs until it is interrupted. Started again on the same --data-dir it goes on
where it was.`,
		Example: `  berth up
  berth up --space team-a,team-b --idle-after 5m
  berth up --space team-a --data-dir /var/lib/berth --listen 127.0.0.1:8443
  berth up --host-kubeconfig ~/.kube/config
  kubectl --kubeconfig ~/.berth/host.kubeconfig apply -f examples/space.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			return flagError(platform.New(config).Run(cmd.Context()))
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:7443", "HOST:PORT of the one TLS port that serves all APIs; kubeconfigs lead to HOST")
	cmd.Flags().StringSliceVar(&o.spaces, "space", []string{"demo"}, "names of spaces to create if they don't exist, besides those of --config; other Space objects of the host are served, too")
	cmd.Flags().StringVar(&o.Host.Kubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; embedded and simulated if empty")
	cmd.Flags().IntVar(&o.Host.Nodes, "nodes", 3, "simulated nodes of the embedded host")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to write to DATA-DIR/berth.log (0 to 10)")
	return cmd
}
