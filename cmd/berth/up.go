// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/tenancy"
)

// upOptions are the flags of `berth up`.
type upOptions struct {
	dataDir        string
	listen         string
	spaces         []string
	dedicated      []string
	hostKubeconfig string
	nodes          int
	idleAfter      time.Duration
	spacesMax      int
	metricsListen  string
	snapshots      snapshotOptions
	traces         traceOptions
	verbosity      int
}

func newUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a host cluster and spaces on this machine",
		Long: `Run everything on this machine, with nothing else installed: a host cluster,
and spaces on it.

The host is an embedded Kubernetes control plane whose nodes are simulated: pods
are scheduled and report as running, but no container is started. With
--host-kubeconfig it is the real cluster of that file instead, with the rights
of its current context.

A space that has had no request from outside for --idle-after is put to sleep:
its API server and controllers end, its pods run on. A request wakes it, and is
answered when it has woken; so do changes to its host objects, and what it wants
to do by itself, such as a CronJob's next run. Requests are those that bear a
credential of the space; a watch lasts as long as it is open, as do exec and logs.

No more than --spaces-max spaces are awake at once. At the bound, the one idle
longest makes room; if all are in use, the next one waits. Reckon with 16 MiB of
memory for each that is awake, and more for one that holds much.

With --snapshot-to, snapshots of all spaces are taken as scheduled: see 'berth
snapshot'.

A space named by --dedicated has a process of its own, with the same data: it can
be switched at any start. Its log is in DATA-DIR/dedicated/SPACE.

It runs until it is interrupted. Started again on the same --data-dir it goes on
where it was, with the spaces of earlier runs too.`,
		Example: `  berth up
  berth up --space team-a,team-b --idle-after 5m
  berth up --space team-a --data-dir /var/lib/berth --listen 127.0.0.1:8443
  berth up --host-kubeconfig ~/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			logs, err := openLogs(o.dataDir, o.verbosity)
			if err != nil {
				return err
			}
			defer logs.close()
			u := &up{options: o, out: cmd.OutOrStdout(), progress: cmd.ErrOrStderr(), logger: logs.logger, started: time.Now()}
			return u.run(cmd.Context())
		},
	}
	addDataDir(cmd, &o.dataDir)
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:7443", "HOST:PORT of the one TLS port that serves all APIs")
	cmd.Flags().StringSliceVar(&o.spaces, "space", []string{"demo"}, "names of the spaces to start, made if they are not there")
	cmd.Flags().StringSliceVar(&o.dedicated, "dedicated", nil, "names of spaces to run in a process of their own each, instead of sharing this one")
	cmd.Flags().StringVar(&o.hostKubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; embedded and simulated if empty")
	cmd.Flags().IntVar(&o.nodes, "nodes", 3, "simulated nodes of the embedded host")
	cmd.Flags().DurationVar(&o.idleAfter, "idle-after", 15*time.Minute, "put a space to sleep when it has been idle this long; 0 for never")
	cmd.Flags().IntVar(&o.spacesMax, "spaces-max", 250, "most spaces to be awake at once; 0 for no bound")
	cmd.Flags().StringVar(&o.snapshots.to, "snapshot-to", "", "URL of a directory or object storage for scheduled snapshots, see 'berth snapshot'; none are taken if empty")
	cmd.Flags().DurationVar(&o.snapshots.every, "snapshot-every", time.Hour, "how often to take a snapshot of each space that has changed")
	cmd.Flags().IntVar(&o.snapshots.keep, "snapshot-keep", 24, "how many scheduled snapshots of each space to keep")
	cmd.Flags().StringVar(&o.metricsListen, "metrics-listen", "", "HOST:PORT for the platform's own /metrics, /livez and /readyz, plain HTTP for whoever reaches it; none if empty")
	cmd.Flags().StringVar(&o.traces.endpoint, "trace-endpoint", "", "HOST:PORT of a collector that takes OTLP by gRPC without TLS, for traces of requests; none if empty")
	cmd.Flags().Int32Var(&o.traces.perMillion, "trace-per-million", 10_000, "how many of a million requests to trace")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to write to DATA-DIR/berth.log (0 to 10)")
	_ = cmd.MarkFlagFilename("host-kubeconfig")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("trace-endpoint", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("metrics-listen", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("space", cobra.NoFileCompletions)
	return cmd
}

// check refuses what means nothing, and drops what is said twice.
func (o *upOptions) check() error {
	var once []string
	for _, name := range o.spaces {
		if !slices.Contains(once, name) && !slices.Contains(o.dedicated, name) {
			once = append(once, name)
		}
	}
	o.spaces = once
	switch {
	case len(o.spaces)+len(o.dedicated) == 0:
		return errors.New("--space: name at least one space")
	case o.idleAfter < 0:
		return fmt.Errorf("--idle-after=%s: want a time, or 0 for never", o.idleAfter)
	case o.spacesMax < 0:
		return fmt.Errorf("--spaces-max=%d: want a number, or 0 for no bound", o.spacesMax)
	}
	if err := o.snapshots.check(); err != nil {
		return err
	}
	if err := o.traces.check(); err != nil {
		return err
	}
	for _, name := range o.spaces {
		if err := tenancy.CheckSpaceName(name); err != nil {
			return fmt.Errorf("--space: %w", err)
		}
	}
	slices.Sort(o.dedicated)
	o.dedicated = slices.Compact(o.dedicated)
	for _, name := range o.dedicated {
		if err := tenancy.CheckSpaceName(name); err != nil {
			return fmt.Errorf("--dedicated: %w", err)
		}
	}
	return nil
}
