// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard"
)

func newSpaces() *cobra.Command {
	var dir string
	var printer spacePrinter
	cmd := &cobra.Command{
		Use:   "spaces [SPACE...]",
		Short: "List spaces with their state in the process",
		Long: `List the spaces of the Berth that runs on the data directory. 'berth space get' lists
the Space objects on the host with the use of their quota.

The columns are:
  READY      True if the space serves requests, or sleeps and would wake for one.
             False if it hasn't started for the first time yet, or has failed.
             Unknown if it hasn't run since Berth started.
  STATE      Running, HostUnreachable, Asleep, Waking, Starting, Stopping, Failed,
             Deleting, or CrashSuspect. Berth doesn't start a CrashSuspect space at
             once, because the process ended while the space was active.
  SINCE      How long READY has had its value.
  IDLE       Time since the last request from outside.
  REQUESTS   Requests in progress (-o wide).
  NEXT WAKE  Time until a timer wakes the space (-o wide).
  MESSAGE    Why the space isn't ready.

The command needs a running Berth.`,
		Example: `  berth spaces
  berth spaces -o wide
  berth spaces demo -o jsonpath='{.status.conditions[0].reason}'`,
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := printer.complete(); err != nil {
				return err
			}
			client := control.NewClient(dir)
			var list []shard.Status
			if len(args) == 0 {
				if err := client.Do(cmd.Context(), http.MethodGet, "/spaces", &list); err != nil {
					return err
				}
				return printer.list(cmd.OutOrStdout(), cmd.ErrOrStderr(), list)
			}
			for _, name := range args {
				var status shard.Status
				if err := client.Do(cmd.Context(), http.MethodGet, spacePath(name), &status); err != nil {
					return err
				}
				list = append(list, status)
			}
			if len(args) == 1 {
				return printer.one(cmd.OutOrStdout(), list[0])
			}
			return printer.list(cmd.OutOrStdout(), cmd.ErrOrStderr(), list)
		},
	}
	flags.AddDataDir(cmd, &dir)
	printer.addFlags(cmd)
	return cmd
}

func spacePath(name string) string { return "/spaces/" + url.PathEscape(name) }

// completeSpaces completes the names of spaces that have a kubeconfig.
func completeSpaces(dir *string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		known, _ := datadir.Kubeconfigs(*dir)
		names := known[:0]
		for _, name := range known {
			if name != datadir.HostName {
				names = append(names, name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
