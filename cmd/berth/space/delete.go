// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newDelete(host *flags.Host) *cobra.Command {
	var policy string
	var change flags.Change
	var wait flags.Wait
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete spaces",
		Long: `Delete spaces: their objects on the host, their stores, their keys, and their
credentials. A deletion can't be undone or stopped. The space of a tenant's own name is
created again, empty: to delete it for good, delete the tenant.

--policy sets spec.deletionPolicy of the space, which decides what happens to its data:
Delete, Retain, or Snapshot. 'berth help delete' describes them.

The command exits with code 1 if a space isn't deleted when --timeout expires; the
deletion continues.`,
		Example: `  berth space delete team-a
  berth space delete team-a team-b --policy Retain --wait=false`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: host.Names("spaces", 0),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			if err := change.Check(); err != nil {
				return err
			}
			var deleted []*v1alpha1.Space
			for _, name := range args {
				space := &v1alpha1.Space{}
				if err := host.Get(cmd.Context(), client.ObjectKey{Name: name}, space); err != nil {
					return err
				}
				if change.Sends() {
					if err := remove(cmd, change.Of(host), space, policy); err != nil {
						return err
					}
				}
				deleted = append(deleted, space)
			}
			ctx, cancel := wait.Context(cmd.Context(), "the deletion continues, see 'berth space get'")
			defer cancel()
			for _, space := range deleted {
				switch {
				case change.Dry():
					change.Line(cmd, progress.Name(space), "deleted")
				case !wait.Wait:
					fmt.Fprintf(cmd.OutOrStdout(), "%s is being deleted\n", progress.Name(space))
				default:
					if err := progress.Deleted(ctx, host, space, cmd.ErrOrStderr()); err != nil {
						return err
					}
					change.Line(cmd, progress.Name(space), "deleted")
				}
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&policy, "policy", "", "Delete, Retain, or Snapshot (default: spec.deletionPolicy of the space)")
	wait.AddTo(cmd, true, "the spaces are deleted")
	change.AddTo(cmd, false)
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(
		[]string{string(v1alpha1.DeletionDelete), string(v1alpha1.DeletionRetain), string(v1alpha1.DeletionSnapshot)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// remove sets the policy if there is one, and starts the deletion.
func remove(cmd *cobra.Command, host client.Client, space *v1alpha1.Space, policy string) error {
	if policy != "" {
		patch := fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, policy)
		if err := host.Patch(cmd.Context(), space.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
			return fmt.Errorf("--policy=%s: %w", policy, err)
		}
	}
	return host.Delete(cmd.Context(), space, client.Preconditions{UID: &space.UID})
}
