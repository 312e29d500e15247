// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/client/storekeys"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newKeys(host *flags.Host) *cobra.Command {
	target := target{host: host}
	cmd := &cobra.Command{
		Use:   "keys NAME [RESOURCE...]",
		Short: "Print the keys of a space's objects in a store of all tenants",
		Long: `Print a key for each object of a space, as a store that all tenants share would have it:
/registry/RESOURCE/TENANT/NAMESPACE/NAME, without NAMESPACE for objects that are in none.
The resources of extensions have their group before RESOURCE. The TENANT is that of the
space, or the name of the space if it has none.

The store of a space contains only this space, and its keys are those of Kubernetes,
without a tenant.

The command lists the objects by the API of the space, which wakes the space. With
RESOURCE, such as pods or deployments.apps, only those objects are listed. It connects
as 'berth space connect' does.`,
		Example: `  berth space keys solar
  berth space keys solar pods deployments.apps`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: host.Names("spaces", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := target.options(cmd, args[0])
			if err != nil {
				return err
			}
			open, err := connection.Open(cmd.Context(), options)
			if err != nil {
				return target.explain(err, options)
			}
			defer open.Close()
			config, err := open.Config.REST()
			if err != nil {
				return err
			}
			tenant := args[0]
			if options.Host != nil {
				var space v1alpha1.Space
				if err := options.Host.Get(cmd.Context(), client.ObjectKey{Name: args[0]}, &space); err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "The tenant of the space isn't known, so the keys have the name of the space: %v\n", err)
				}
				tenant = cmp.Or(space.Spec.TenantName, tenant)
			}
			return storekeys.Print(cmd.Context(), cmd.OutOrStdout(), config, tenant, args[1:])
		},
	}
	cmd.Flags().StringVar(&target.namespace, "secret-namespace", "", "host namespace of the Secret with the kubeconfig (default: all are searched)")
	_ = cmd.RegisterFlagCompletionFunc("secret-namespace", host.Namespaces())
	return cmd
}
