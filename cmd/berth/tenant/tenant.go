// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tenant has the commands for tenants: flags and printing. They use the API of the host with the rights of the caller.
package tenant

import (
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
)

// New returns the command for tenants, with those below it.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tenant",
		Aliases: []string{"tenants", "tnt"},
		Short:   "Create, list, cordon, and delete tenants",
		Long: `Create, list, cordon, and delete tenants. A tenant has a space of its own name, and may
have more spaces. Tenants form a tree: the owners of a tenant also own the tenants below
it, except for private ones.

The commands use the API of the host cluster with your kubeconfig and your rights, as
kubectl does. They work from any machine, and the host's audit log contains what they
do. If you have no kubeconfig, they use the host of a 'berth up' on this machine.`,
	}
	host := &flags.Host{}
	host.AddTo(cmd)
	cmd.AddCommand(newCreate(host), newGet(host), newTree(host), newCordon(host), newUncordon(host), newDelete(host))
	return cmd
}
