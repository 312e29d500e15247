// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newCreate(host *flags.Host) *cobra.Command {
	var tenant, isolation, platform string
	var change flags.Change
	var wait flags.Wait
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a space",
		Long: `Create a space. Use 'kubectl edit space NAME' for the fields that have no flag here. To
get a manifest, use --dry-run=client -o yaml.

A space of a tenant has the owners, the quota, and the policies of the tenant. The tenant
of a space can't be changed later.`,
		Example: `  berth space create team-a --wait
  berth space create acme-ci --tenant acme --isolation Dedicated`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := change.Check(); err != nil {
				return err
			}
			if err := checkIsolation(isolation); err != nil {
				return err
			}
			space := &v1alpha1.Space{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Space"},
				ObjectMeta: metav1.ObjectMeta{Name: args[0]},
				Spec:       v1alpha1.SpaceSpec{TenantName: tenant, PlatformName: platform, Isolation: v1alpha1.Isolation(isolation)},
			}
			if !change.Sends() { // needs no host
				return change.Print(cmd, space, "Space", progress.Name(space), "created")
			}
			return host.Run(func(cmd *cobra.Command, _ []string, host *hostapi.Client) error {
				if err := change.Of(host).Create(cmd.Context(), space); err != nil {
					return err
				}
				if wait.Wait && !change.Dry() {
					ctx, cancel := wait.Context(cmd.Context(), "the space is created, and becomes ready later; see 'berth space describe "+space.Name+"'")
					defer cancel()
					if err := progress.Ready(ctx, host, space, cmd.ErrOrStderr()); err != nil {
						return err
					}
				}
				return change.Print(cmd, space, "Space", progress.Name(space), "created")
			})(cmd, args)
		},
	}
	cmd.Flags().StringVarP(&tenant, "tenant", "t", "", "tenant that the space belongs to (default: none)")
	cmd.Flags().StringVar(&isolation, "isolation", "", "Shared, or Dedicated for a process of its own (default: Shared)")
	cmd.Flags().StringVar(&platform, "platform-name", "", "platform that serves the space (default: berth)")
	wait.AddTo(cmd, false, "the space is ready")
	change.AddTo(cmd, true)
	_ = cmd.RegisterFlagCompletionFunc("tenant", host.Names("tenants", 0))
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions([]string{string(v1alpha1.Shared), string(v1alpha1.Dedicated)}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("platform-name", cobra.NoFileCompletions)
	return cmd
}

// checkIsolation rejects a value before anything is sent, for --dry-run=client.
func checkIsolation(isolation string) error {
	switch v1alpha1.Isolation(isolation) {
	case "", v1alpha1.Shared, v1alpha1.Dedicated:
		return nil
	}
	return fmt.Errorf("--isolation=%s: must be %s or %s", isolation, v1alpha1.Shared, v1alpha1.Dedicated)
}
