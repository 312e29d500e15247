// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/listing"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newGet(host *flags.Host) *cobra.Command {
	var get flags.Get
	cmd := &cobra.Command{
		Use:     "get [NAME...]",
		Aliases: []string{"list", "ls"},
		Short:   "List tenants with their state",
		Long: `List tenants, or those that you name. The columns are those of 'kubectl get tenants':
  STATE            Active, Cordoned, Invalid, or Deleting.
  SPACES           How many of the tenant's spaces are ready.
  NAMESPACE QUOTA  How many namespaces the spaces may have together.
  NAMESPACE COUNT  How many they have.
  OWNERS           The first owners.
  PARENT           The tenant above this one.
With -o wide, there are also columns for the condition Ready, private tenants, and usage.`,
		Example: `  berth tenant get
  berth tenant get acme -o yaml
  berth tenant get -l tree.berth.dev/acme -o name    # all tenants below acme
  berth tenant get -w`,
		ValidArgsFunction: host.Names("tenants", 0),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			return get.Run(cmd, host, listing.Query{Resource: "tenants", Names: args}, "")
		}),
	}
	get.AddTo(cmd)
	return cmd
}
