// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/tenancy"
)

// upOptions are the flags of `berth up`.
type upOptions struct {
	dataDir        string
	listen         string
	space          string
	hostKubeconfig string
	nodes          int
	verbosity      int
}

func newUp() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a host cluster and a space on this machine",
		Long: `Run everything on this machine, with nothing else installed: a host cluster,
and a space on it.

The host is an embedded Kubernetes control plane whose nodes are simulated: pods
are scheduled and report as running, but no container is started. With
--host-kubeconfig it is the real cluster of that file instead, with the rights
of its current context.

It runs until it is interrupted. Started again on the same --data-dir it goes on
where it was.`,
		Example: `  berth up
  berth up --space team-a --data-dir /var/lib/berth --listen 127.0.0.1:8443
  berth up --host-kubeconfig ~/.kube/config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := tenancy.CheckSpaceName(o.space); err != nil {
				return fmt.Errorf("--space: %w", err)
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
	cmd.Flags().StringVar(&o.space, "space", "demo", "name of the space to run, made if it is not there")
	cmd.Flags().StringVar(&o.hostKubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; embedded and simulated if empty")
	cmd.Flags().IntVar(&o.nodes, "nodes", 3, "simulated nodes of the embedded host")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to write to DATA-DIR/berth.log (0 to 10)")
	_ = cmd.MarkFlagFilename("host-kubeconfig")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("space", cobra.NoFileCompletions)
	return cmd
}
