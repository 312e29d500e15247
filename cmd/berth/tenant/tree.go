// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/report"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// pageSize is how many tenants one request reads.
const pageSize = 500

func newTree(host *flags.Host) *cobra.Command {
	return &cobra.Command{
		Use:   "tree [NAME]",
		Short: "Draw the tree of tenants with their usage",
		Long: `Draw the tree of tenants, or the part of it that begins with a tenant. For each tenant,
print its state, how many of its spaces are ready, and as bars what it uses of its
limits: namespaces, CPU, and memory. The usage is that of the tenant's own spaces,
without the tenants below.

If the locale ($LC_ALL, $LC_CTYPE, or $LANG) isn't a UTF-8 one, the tree is drawn with
ASCII characters.`,
		Example: `  berth tenant tree
  berth tenant tree acme`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: host.Names("tenants", 1),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			var tenants []v1alpha1.Tenant
			var below []client.ListOption
			if len(args) == 1 {
				var root v1alpha1.Tenant
				if err := host.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, &root); err != nil {
					return err
				}
				tenants, below = append(tenants, root), append(below, client.HasLabels{v1alpha1.LabelTreePrefix + args[0]})
			}
			all, err := list(cmd, host, below...)
			if err != nil {
				return err
			}
			if tenants = append(tenants, all...); len(tenants) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No tenants found")
				return nil
			}
			return report.Tree(cmd.OutOrStdout(), tenants, report.StyleOf(os.Getenv))
		}),
	}
}

// list returns all tenants that the options select.
func list(cmd *cobra.Command, host client.Reader, options ...client.ListOption) (tenants []v1alpha1.Tenant, err error) {
	for next := ""; ; {
		var page v1alpha1.TenantList
		if err := host.List(cmd.Context(), &page, append(options, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return nil, err
		}
		tenants = append(tenants, page.Items...)
		if next = page.Continue; next == "" {
			return tenants, nil
		}
	}
}
