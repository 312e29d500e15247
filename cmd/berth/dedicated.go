// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/shard"
)

// newDedicated returns the command that `berth up` and `berth serve` run for each dedicated space, in a child process
// or a pod.
func newDedicated() *cobra.Command {
	var o dedicatedOptions
	cmd := &cobra.Command{
		Use:    "dedicated --config FILE",
		Short:  "Run one dedicated space for 'berth up' or 'berth serve', until standard input ends or the process is terminated",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer shard.TuneGC()()
			space, err := process.ReadDedicated(o.file)
			if err != nil {
				return err
			}
			ctx, logger, closeLog, err := o.prepare(cmd, space)
			if err != nil {
				return err
			}
			defer closeLog()
			return flags.Error(spaceprocess.Run(ctx, space, filepath.Dir(o.file), readVersion().Berth, logger))
		},
	}
	cmd.Flags().StringVar(&o.file, "config", "", "configuration file that 'berth up' or 'berth serve' wrote")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "log level, 0 to 10")
	cmd.Flags().StringVar(&o.logFormat, "log-format", logText, "log format of a pod, text or json")
	return cmd
}

type dedicatedOptions struct {
	file, logFormat string
	verbosity       int
}

// prepare returns a context that ends when the command must stop, and the logger. A child process logs to a file and stops when its
// standard input ends. A pod logs to standard error and stops on a signal.
func (o *dedicatedOptions) prepare(cmd *cobra.Command, space *process.Dedicated) (ctx context.Context, logger klog.Logger, done func(), err error) {
	if space.Remote() {
		logger, err = logTo(cmd.ErrOrStderr(), space.DataDir, o.logFormat, o.verbosity)
		return cmd.Context(), logger, func() {}, err
	}
	logs, err := openLogs(datadir.Dedicated(space.DataDir, space.Space), o.verbosity)
	if err != nil {
		return nil, klog.Logger{}, nil, err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	go func() {
		_, _ = io.Copy(io.Discard, cmd.InOrStdin())
		cancel()
	}()
	return ctx, logs.logger, func() { cancel(); logs.close() }, nil
}
