// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
)

func newKubeconfig() *cobra.Command {
	var dir string
	var request kubeconfig.Request
	var owner ownerFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig SPACE [--owner NAME [--owner-kind KIND] | [--user NAME] [--group NAME]...] [--ttl DURATION]",
		Short: "Print or issue a kubeconfig of a space",
		Long: `Print the kubeconfig of a space's admin. For the SPACE "host", print the kubeconfig of
the embedded host cluster. The printed credentials are valid for 12 to 24 hours. Berth
renews them, so print the kubeconfig again instead of keeping a copy.

With --user, --group, or --ttl, issue another kubeconfig. Berth doesn't store or renew
it. RBAC in the space decides what its user can do: bind roles to the user or to its
groups. Members of the group berth:admins can do everything. Berth refuses users and
groups whose names begin with "system:".

With --owner, issue a kubeconfig for an owner of the space (spec.access.owners of the
Space). The space rejects it when the owner is removed.

You can't revoke a single other kubeconfig. 'berth rotate SPACE --ca' revokes all of a space.
To limit what one user can do, change the role bindings in the space.`,
		Example: `  berth kubeconfig demo > demo.kubeconfig
  kubectl --kubeconfig <(berth kubeconfig demo) get pods
  berth kubeconfig demo --user jane --group developers --ttl 8h > jane.kubeconfig
  berth kubeconfig demo --owner alice > alice.kubeconfig`,
		Args: cobra.ExactArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			known, _ := datadir.Kubeconfigs(dir)
			return known, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			known, err := datadir.Kubeconfigs(dir)
			if err != nil {
				return err
			}
			if !slices.Contains(known, args[0]) {
				return fmt.Errorf("space %q not found in %s%s", args[0], dir, hint(known))
			}
			var data []byte
			flags := cmd.Flags()
			switch { // if empty, they would mean an admin
			case flags.Changed("user") && request.User == "":
				return errors.New("--user must not be empty")
			case flags.Changed("group") && len(request.Groups) == 0:
				return errors.New("--group must not be empty")
			}
			if request.Owner, err = owner.subject(flags, dir, args[0]); err != nil {
				return flagError(err)
			}
			if request.Owner != nil || flags.Changed("user") || flags.Changed("group") || flags.Changed("ttl") {
				data, err = kubeconfig.Issue(dir, args[0], request)
			} else {
				data, err = kubeconfig.Read(dir, args[0])
			}
			if err != nil {
				return flagError(err)
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().StringVar(&request.User, "user", "", "issue a kubeconfig for this user (default: "+kubeconfig.AdminUser+")")
	cmd.Flags().StringSliceVar(&request.Groups, "group", nil, "issue a kubeconfig for a user in these groups (default: "+kubeconfig.AdminGroup+", unless --user is set)")
	cmd.Flags().DurationVar(&request.TTL, "ttl", kubeconfig.DefaultTTL, "issue a kubeconfig that is valid this long, from 10m to 168h")
	owner.add(cmd)
	return cmd
}

func hint(known []string) string {
	if len(known) == 0 {
		return "; to create a space, run: berth up"
	}
	return "; found: " + strings.Join(known, ", ")
}
