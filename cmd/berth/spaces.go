// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard"
)

func newSpaces() *cobra.Command {
	var dir string
	var printer spacePrinter
	cmd := &cobra.Command{
		Use:     "spaces [SPACE...]",
		Aliases: []string{"space"},
		Short:   "List the spaces of a running berth, and how they are",
		Long: `List the spaces of the berth that runs on the data directory. On the host, 'kubectl
get spaces' shows their objects, with what they use of their quota.

READY is True for a space that runs, and for one that sleeps, which a request ends;
False until it has started for the first time, and if it has failed; Unknown for one
that has not run since berth was started. STATE is one of Running, HostUnreachable,
Asleep, Waking, Starting, Stopping, Failed, CrashSuspect (held back, as the process
ended while it was active) and Deleting; MESSAGE says why a space is not ready.
SINCE is how long READY has been as it is, IDLE how long ago the last request from
outside came.`,
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
	addDataDir(cmd, &dir)
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
