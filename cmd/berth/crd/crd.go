// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crd has the command that says which CustomResourceDefinitions are in force in a space. It uses the API of the space with the
// rights of the caller.
package crd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/listing"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// New returns the command, with the one below it.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Show which CustomResourceDefinitions are in force in a space",
		Long: `Show which CustomResourceDefinitions are in force in a space.

The commands use the API of the space, with your kubeconfig of it.`,
	}
	space := &flags.Host{}
	space.AddTo(cmd)
	cmd.PersistentFlags().Lookup("kubeconfig").Usage = "kubeconfig of the space (default: $KUBECONFIG, or ~/.kube/config)"
	cmd.AddCommand(newList(space))
	return cmd
}

func newList(space *flags.Host) *cobra.Command {
	var get flags.Get
	cmd := &cobra.Command{
		Use:     "list [NAME...]",
		Aliases: []string{"get", "ls"},
		Short:   "List CustomResourceDefinitions, which are in force, and why",
		Long: `List the CustomResourceDefinitions that the space has, and those that the platform shares
with it by CRDShares, or because it syncs their objects with the host. The columns are those of 'kubectl get crdmatches':
  IN FORCE  Local if the space uses its own definition, Shared if it uses the one that the
            platform shares, and None if it uses none.
  MODE      Forced or Optional, as the platform shares its definition. It forces those of kinds
            that it syncs.
  REASON    Why, in one word. With -o wide, MESSAGE says it in a sentence.

The policy of the space is in its object 'crdpolicy/default'.`,
		Example: `  berth crd list
  berth crd list certificates.cert-manager.io -o wide
  berth space connect solar -- berth crd list    # as an admin of the platform`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := space.Open(cmd)
			if err != nil {
				return err
			}
			api, err := client.Group(v1alpha1.GroupVersion)
			if err != nil {
				return err
			}
			err = get.RunOn(cmd, api, listing.Query{Resource: v1alpha1.CRDMatches.Resource, Names: args}, "")
			if hostapi.IsMissingType(err) {
				return fmt.Errorf("%s has no %s: use the kubeconfig of a tenant's space, as in 'berth space connect SPACE -- berth crd list'", client.Config.Host, v1alpha1.CRDMatches)
			}
			return hostapi.Explain(err, client.Config.Host)
		},
	}
	get.AddPrintTo(cmd)
	return cmd
}
