// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/platform/process"
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
			space, err := process.ReadDedicated(file)
			if err != nil {
				return err
			}
			logs, err := openLogs(datadir.Dedicated(space.DataDir, space.Space), verbosity)
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
			return flagError(manager.RunDedicated(ctx, space, manager.Version{Berth: info.Berth, Kubernetes: info.Kubernetes}, logs.logger))
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "file with the configuration, which the other command wrote")
	cmd.Flags().IntVarP(&verbosity, "verbosity", "v", 0, "how much to write to the log")
	return cmd
}
