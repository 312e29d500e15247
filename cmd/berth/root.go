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
	// Upstream's packages add flags here, which cobra would show as flags of berth.
	pflag.CommandLine = pflag.NewFlagSet("berth", pflag.ContinueOnError)
	root := &cobra.Command{
		Use:   "berth",
		Short: "Give each tenant of a Kubernetes cluster a cluster of its own",
		Long: `Berth gives each tenant of a Kubernetes cluster a space. To its users, a space is a
cluster: it has its own API server, storage, CRDs, RBAC, and kubeconfig. The pods of
all spaces run on one host cluster, where policies and quotas isolate the spaces from
each other.

To try it, run 'berth up'. It runs a host cluster and the space "demo" on this machine.

Every command exits with code 0 if it succeeds. Otherwise it exits with code 1 and
prints the error to standard error.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newUp(), newServe(), newOperator(), newApply(), newCheck(), newSpaces(), newSleep(), newWake(), newDelete(), newSnapshot(), newKubeconfig(), newRotate(), newVersion(), newDedicated())
	return root
}

// addDataDir declares the flag for the data directory.
func addDataDir(cmd *cobra.Command, dir *string) {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	// The image sets it, so that commands that run in the container find the directory.
	usual := cmp.Or(os.Getenv("BERTH_DATA_DIR"), filepath.Join(home, ".berth"))
	cmd.Flags().StringVar(dir, "data-dir", usual, "directory in which Berth keeps all of its data; $BERTH_DATA_DIR sets another default")
	_ = cmd.MarkFlagDirname("data-dir")
}
