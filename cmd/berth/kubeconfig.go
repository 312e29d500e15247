// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform"
)

func newKubeconfig() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "kubeconfig SPACE",
		Short: "Print the kubeconfig of a space",
		Long: `Print the kubeconfig of a space's admin, as 'berth up' wrote it. "host" is the
embedded host cluster's. What is printed is good for half a year at least: its
certificate is renewed before, here and by a berth that runs.`,
		Example: `  berth kubeconfig demo > demo.kubeconfig
  kubectl --kubeconfig <(berth kubeconfig demo) get pods`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			known, _ := platform.Kubeconfigs(dir)
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			known, err := platform.Kubeconfigs(dir)
			if err != nil {
				return err
			}
			if !slices.Contains(known, args[0]) {
				return fmt.Errorf("no space %q in %s%s", args[0], dir, hint(known))
			}
			data, err := platform.Kubeconfig(dir, args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	addDataDir(cmd, &dir)
	return cmd
}

func hint(known []string) string {
	if len(known) == 0 {
		return "; start one with: berth up"
	}
	return "; there is: " + strings.Join(known, ", ")
}
