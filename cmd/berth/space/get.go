// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/listing"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newGet(host *flags.Host) *cobra.Command {
	var get flags.Get
	var tenant string
	var allTenants bool
	cmd := &cobra.Command{
		Use:     "get [NAME...]",
		Aliases: []string{"list", "ls"},
		Short:   "List spaces with their state",
		Long: `List spaces, or those that you name. The columns are those of 'kubectl get spaces':
  READY   True if the space serves requests, or sleeps and would wake for one.
  STATE   Pending, Starting, Running, Stopping, Asleep, Waking, Failed, or Deleting.
  CPU     What the space uses of its CPU quota.
  MEMORY  What the space uses of its memory quota.
With -o wide, there are also columns for the tenant, the isolation, the shard, the
endpoint, and why the space isn't ready.

With --tenant, only the spaces of one tenant are listed. With --all-tenants, the spaces
of all tenants are listed, and the first column is their tenant.`,
		Example: `  berth space get
  berth space get -T
  berth space get --tenant acme -o wide
  berth space get solar -o jsonpath='{.status.endpoint}'
  berth space get -w`,
		ValidArgsFunction: host.Names("spaces", 0),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			query := listing.Query{Resource: "spaces", Names: args}
			first := ""
			switch {
			case allTenants && tenant != "":
				return errors.New("--all-tenants lists the spaces of all tenants; don't set --tenant")
			case len(args) > 0 && tenant != "":
				return fmt.Errorf("--tenant=%s: a name is enough, because names of spaces are unique; don't set both", tenant)
			case allTenants:
				first = "Tenant"
			case tenant != "":
				query.Fields = fields.OneTermEqualSelector("spec.tenantName", tenant).String()
			}
			return get.Run(cmd, host, query, first)
		}),
	}
	get.AddTo(cmd)
	cmd.Flags().StringVarP(&tenant, "tenant", "t", "", "list the spaces of this tenant")
	cmd.Flags().BoolVarP(&allTenants, "all-tenants", "T", false, "list the spaces of all tenants, with a column for the tenant")
	_ = cmd.RegisterFlagCompletionFunc("tenant", host.Names("tenants", 0))
	return cmd
}
