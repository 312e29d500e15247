// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newDelete(host *flags.Host) *cobra.Command {
	var subtree bool
	var change flags.Change
	var wait flags.Wait
	cmd := &cobra.Command{
		Use:   "delete NAME...",
		Short: "Delete tenants with their spaces",
		Long: `Delete tenants with their spaces, and what the spaces have on the host. A deletion can't
be undone or stopped. What becomes of the data of a space is in its spec.deletionPolicy.

A tenant that has tenants below it is deleted only with --subtree, which deletes those,
too. To see which tenants that are, use --subtree with --dry-run=client.

The command exits with code 1 if a tenant isn't deleted when --timeout expires; the
deletion continues.`,
		Example: `  berth tenant delete acme-dev
  berth tenant delete acme --subtree --dry-run=client
  berth tenant delete acme --subtree`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: host.Names("tenants", 0),
		RunE: host.Run(func(cmd *cobra.Command, args []string, host *hostapi.Client) error {
			if err := change.Check(); err != nil {
				return err
			}
			var deleted []*v1alpha1.Tenant
			var errs []error // of some tenants, which don't keep the others
			for _, name := range args {
				tenant := &v1alpha1.Tenant{}
				err := host.Get(cmd.Context(), client.ObjectKey{Name: name}, tenant)
				if err == nil {
					err = remove(cmd, host, tenant, subtree, &change)
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				deleted = append(deleted, tenant)
			}
			if change.Dry() {
				return errors.Join(errs...)
			}
			if !wait.Wait {
				for _, tenant := range deleted {
					fmt.Fprintf(cmd.OutOrStdout(), "%s is being deleted\n", progress.Name(tenant))
				}
				return errors.Join(errs...)
			}
			ctx, cancel := wait.Context(cmd.Context(), "the deletion continues, see 'berth tenant get'")
			defer cancel()
			for _, tenant := range deleted {
				if err := progress.Deleted(ctx, host, tenant, cmd.ErrOrStderr()); err != nil {
					return errors.Join(append(errs, err)...)
				}
				change.Line(cmd, progress.Name(tenant), "deleted")
			}
			return errors.Join(errs...)
		}),
	}
	cmd.Flags().BoolVar(&subtree, "subtree", false, "also delete all tenants below")
	wait.AddTo(cmd, true, "the tenants are deleted")
	change.AddTo(cmd, false)
	return cmd
}

// remove starts the deletion of a tenant, or prints what would be deleted.
func remove(cmd *cobra.Command, host client.Client, tenant *v1alpha1.Tenant, subtree bool, change *flags.Change) error {
	ctx := cmd.Context()
	allowed := tenant.Spec.DeletionPropagation == v1alpha1.DeleteSubtree
	below, err := list(cmd, host, client.HasLabels{v1alpha1.LabelTreePrefix + tenant.Name})
	if err != nil && !apierrors.IsForbidden(err) { // the right to delete one may come without the right to list all
		return err
	}
	// The host refuses it, too. Here, the answer can name them, and there is an answer if its policies are not installed.
	if children := ptr.Deref(tenant.Status.Children, 0); !subtree && !allowed && max(int(children), len(below)) > 0 {
		return fmt.Errorf("%s has tenants below it: %s; to delete them as well, use --subtree", progress.Name(tenant), namesOf(below, int(children)))
	}
	if change.Dry() {
		for _, t := range below {
			change.Line(cmd, progress.Name(&t), "deleted")
		}
	}
	mustAllow := subtree && !allowed
	if mustAllow && change.Sends() {
		if err := propagate(ctx, change.Of(host), tenant, v1alpha1.DeleteSubtree); err != nil {
			return err
		}
	}
	// A dry run has not stored that the subtree may be deleted, so that the host would refuse to delete it.
	if change.Sends() && (!mustAllow || !change.Dry()) {
		err := change.Of(host).Delete(ctx, tenant, client.Preconditions{UID: &tenant.UID})
		if err != nil && mustAllow {
			err = errors.Join(err, propagate(context.WithoutCancel(ctx), host, tenant, v1alpha1.RefuseDeletion))
		}
		if err != nil {
			return err
		}
	}
	if change.Dry() {
		change.Line(cmd, progress.Name(tenant), "deleted")
	}
	return nil
}

func propagate(ctx context.Context, host client.Client, tenant *v1alpha1.Tenant, propagation v1alpha1.DeletionPropagation) error {
	patch := fmt.Appendf(nil, `{"spec":{"deletionPropagation":%q}}`, propagation)
	return host.Patch(ctx, tenant.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))
}

// namesOf returns the names of the first tenants, and how many more there are.
func namesOf(tenants []v1alpha1.Tenant, atLeast int) string {
	const shown = 5
	var names []string
	for _, t := range tenants[:min(shown, len(tenants))] {
		names = append(names, t.Name)
	}
	if len(names) == 0 {
		return fmt.Sprintf("%d, see 'berth tenant tree'", atLeast)
	}
	if more := len(tenants) - len(names); more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(names, ", "), more)
	}
	return strings.Join(names, ", ")
}
