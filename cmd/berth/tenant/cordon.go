// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newCordon(host *flags.Host) *cobra.Command {
	return newCordonTo(host, true, &cobra.Command{
		Use:   "cordon NAME...",
		Short: "Let the users of tenants read and delete only",
		Long: `Cordon tenants: the users of their spaces may read and delete only. What runs in the
spaces runs on. The tenants below aren't cordoned.`,
		Example: "  berth tenant cordon acme",
	})
}

func newUncordon(host *flags.Host) *cobra.Command {
	return newCordonTo(host, false, &cobra.Command{
		Use:     "uncordon NAME...",
		Short:   "Let the users of cordoned tenants write again",
		Long:    "Uncordon tenants: the users of their spaces may write again.",
		Example: "  berth tenant uncordon acme",
	})
}

func newCordonTo(host *flags.Host, cordoned bool, cmd *cobra.Command) *cobra.Command {
	var change flags.Change
	done := map[bool]string{true: "cordoned", false: "uncordoned"}[cordoned]
	cmd.Args, cmd.ValidArgsFunction = cobra.MinimumNArgs(1), host.Names("tenants", 0)
	cmd.RunE = host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
		if err := change.Check(); err != nil {
			return err
		}
		for _, name := range args {
			var tenant v1alpha1.Tenant
			if err := host.Get(cmd.Context(), client.ObjectKey{Name: name}, &tenant); err != nil {
				return err
			}
			if ptr.Deref(tenant.Spec.Cordoned, false) == cordoned {
				change.Line(cmd, progress.Name(&tenant), "already "+done)
				continue
			}
			if change.Sends() {
				patch := fmt.Appendf(nil, `{"spec":{"cordoned":%t}}`, cordoned)
				if err := change.Of(host).Patch(cmd.Context(), &tenant, client.RawPatch("application/merge-patch+json", patch)); err != nil {
					return err
				}
			}
			change.Line(cmd, progress.Name(&tenant), done)
		}
		return nil
	})
	change.AddTo(cmd, false)
	return cmd
}
