// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/cmd/berth/crd"
	"github.com/berth-dev/berth/cmd/berth/login"
	"github.com/berth-dev/berth/cmd/berth/shard"
	"github.com/berth-dev/berth/cmd/berth/space"
	"github.com/berth-dev/berth/cmd/berth/syncpolicy"
	"github.com/berth-dev/berth/cmd/berth/tenant"
	"github.com/berth-dev/berth/cmd/berth/usage"
)

// newRoot returns the command with the name by which it was called: that of a plugin of kubectl is "kubectl berth".
func newRoot(called string) *cobra.Command {
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

To manage tenants and spaces of a cluster that runs Berth, use 'berth tenant' and
'berth space'. They use the host's API with your kubeconfig. If you install this binary as
kubectl-berth in a directory of your PATH, 'kubectl berth' is the same as 'berth'.

Every command exits with code 0 if it succeeds. Otherwise it exits with code 1 and
prints the error to standard error. 'berth space connect SPACE -- COMMAND' exits with the
code of COMMAND.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(tenant.New(), space.New(), shard.New(), usage.New(), crd.New(), syncpolicy.New(), login.New(), login.NewLogout())
	root.AddCommand(space.Aliases()...)
	root.AddCommand(newUp(), newServe(), newOperator(), newApply(), newCheck(), newSpaces(), newDelete(), newKubeconfig(), newRotate(), newVersion(), newDedicated())
	if strings.HasPrefix(filepath.Base(called), plugin) {
		renameTo(root, "kubectl berth")
	}
	return root
}
