// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform"
)

// dedicatedOptions are the flags of `berth dedicated`: some of those of the command that runs it, and what that one adds.
type dedicatedOptions struct {
	runOptions
	platform.DedicatedSpace
}

// newDedicated is the command that `berth up --dedicated` runs, once a space.
func newDedicated() *cobra.Command {
	var o dedicatedOptions
	cmd := &cobra.Command{
		Use:    "dedicated SPACE",
		Short:  "Run one space for a 'berth up --dedicated', until standard input ends",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Space = args[0]
			config, err := o.config()
			if err != nil {
				return err
			}
			logs, err := openLogs(platform.DedicatedDir(o.DataDir, o.Space), o.verbosity)
			if err != nil {
				return err
			}
			defer logs.close()
			config.Logger = logs.logger
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin())
				cancel()
			}()
			return flagError(platform.RunDedicated(ctx, config, o.DedicatedSpace))
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *dedicatedOptions) addFlags(cmd *cobra.Command) {
	addDataDir(cmd, &o.DataDir)
	cmd.Flags().StringVar(&o.HostKubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; that which it is a pod of if empty")
	cmd.Flags().StringVar(&o.Endpoint, "endpoint", "", "URL of the gateway")
	cmd.Flags().DurationVar(&o.IdleAfter, "idle-after", 0, "put the space to sleep when it has been idle this long")
	addPodsFlags(cmd, &o.Pods)
	addTraceFlags(cmd, &o.Traces)
	o.spaceOptions.addFlags(cmd)
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to write to the log")
}
