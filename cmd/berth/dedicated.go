// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform"
)

// newDedicated is the command that `berth up` and `berth serve` run, once a dedicated space.
func newDedicated() *cobra.Command {
	var file string
	var verbosity int
	cmd := &cobra.Command{
		Use:    "dedicated --config FILE",
		Short:  "Run one dedicated space for a 'berth up' or 'berth serve', until standard input ends",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			space, err := platform.ReadDedicatedSpace(file)
			if err != nil {
				return err
			}
			logs, err := openLogs(platform.DedicatedDir(space.DataDir, space.Space), verbosity)
			if err != nil {
				return err
			}
			defer logs.close()
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin())
				cancel()
			}()
			info := readVersion()
			return flagError(platform.RunDedicated(ctx, space, platform.Version{Berth: info.Berth, Kubernetes: info.Kubernetes}, logs.logger))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "file with the configuration, which the other command wrote")
	cmd.Flags().IntVarP(&verbosity, "verbosity", "v", 0, "how much to write to the log")
	return cmd
}
