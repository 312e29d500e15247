// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newRoot() *cobra.Command {
	// Upstream's packages add flags of their own commands to these, which cobra would show as ours.
	pflag.CommandLine = pflag.NewFlagSet("berth", pflag.ContinueOnError)
	root := &cobra.Command{
		Use:   "berth",
		Short: "A Kubernetes cluster of its own for every tenant, on the nodes that all share",
		Long: `Berth gives every tenant of one Kubernetes cluster a space: an API server,
storage, CRDs, RBAC and kubeconfig of its own. What runs in a space runs on the
shared host cluster, behind quotas and policies, without seeing it.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newUp(), newServe(), newCheck(), newSpaces(), newSleep(), newWake(), newDelete(), newSnapshot(), newKubeconfig(), newRotate(), newVersion(), newDedicated())
	return root
}

// addDataDir declares the flag that all commands on a data directory share.
func addDataDir(cmd *cobra.Command, dir *string) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	// In a container it is set, so that commands run there find the directory.
	usual := cmp.Or(os.Getenv("BERTH_DATA_DIR"), filepath.Join(home, ".berth"))
	cmd.Flags().StringVar(dir, "data-dir", usual, "directory that holds everything Berth keeps on this machine; $BERTH_DATA_DIR if that is set")
	_ = cmd.MarkFlagDirname("data-dir")
}
