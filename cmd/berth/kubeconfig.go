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
	cmd := &cobra.Command{
		Use:   "kubeconfig SPACE [--user NAME] [--group NAME]... [--ttl DURATION]",
		Short: "Print the kubeconfig of a space, or issue another one",
		Long: `Print the kubeconfig of a space's admin, as 'berth up' wrote it. "host" is the
embedded host cluster's. What is printed is good for 12 hours at least, and for a
day at most: its certificate is renewed in time, here and by a berth that runs.
Print it again rather than keep a copy.

With --user, --group or --ttl, issue a kubeconfig instead, which is not kept or
renewed. What its user may do, RBAC in the space says: bind roles to the user or
to its groups. The group berth:admins may do everything. Berth issues nothing for
users and groups that begin with "system:".

A kubeconfig can't be taken back by itself. 'berth rotate SPACE --ca' revokes all
that were issued for a space. Take back what one may do by RBAC.`,
		Example: `  berth kubeconfig demo > demo.kubeconfig
  kubectl --kubeconfig <(berth kubeconfig demo) get pods
  berth kubeconfig demo --user jane --group developers --ttl 8h > jane.kubeconfig`,
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
				return fmt.Errorf("no space %q in %s%s", args[0], dir, hint(known))
			}
			var data []byte
			flags := cmd.Flags()
			switch { // empty, they would mean an admin
			case flags.Changed("user") && request.User == "":
				return errors.New("--user=: want a name")
			case flags.Changed("group") && len(request.Groups) == 0:
				return errors.New("--group=: want a name")
			}
			if flags.Changed("user") || flags.Changed("group") || flags.Changed("ttl") {
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
	cmd.Flags().StringVar(&request.User, "user", "", "name of the user to issue a kubeconfig for; "+kubeconfig.AdminUser+" if empty")
	cmd.Flags().StringSliceVar(&request.Groups, "group", nil, "groups of that user; "+kubeconfig.AdminGroup+" if neither --user nor --group is given")
	cmd.Flags().DurationVar(&request.TTL, "ttl", kubeconfig.DefaultTTL, "how long the kubeconfig is good, from 10m to 168h")
	return cmd
}

func hint(known []string) string {
	if len(known) == 0 {
		return "; start one with: berth up"
	}
	return "; there is: " + strings.Join(known, ", ")
}
