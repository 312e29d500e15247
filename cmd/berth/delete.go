// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
)

func newDelete() *cobra.Command {
	var dir, policy string
	var waits bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "delete SPACE...",
		Short: "Delete spaces",
		Long: `Delete spaces: their objects on the host, their stores, their keys, and their
credentials. Other spaces aren't interrupted. A deletion can't be undone or stopped: it
continues when Berth restarts. 'berth space delete' does the same by the host's API.

--policy sets spec.deletionPolicy of the space, which decides what happens to its data:
  Delete    Remove the data.
  Retain    Keep the store and the keys in DATA-DIR/retained. A space that you later
            create with the same name continues with them.
  Snapshot  Take a last snapshot to --snapshot-to of 'berth up', then delete the data.

If --space, --dedicated, or --config of 'berth up' names the space, Berth creates it
again, empty, at the next start.

The command needs a running Berth. It exits with code 1 if a space isn't deleted when
--timeout expires; the deletion continues.`,
		Example: `  berth delete team-a
  berth delete team-a team-b --policy Snapshot --wait=false`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := control.NewClient(dir)
			for _, name := range args {
				if err := client.Do(cmd.Context(), http.MethodDelete, spacePath(name)+"?policy="+url.QueryEscape(policy), nil); err != nil {
					return err
				}
			}
			if !waits {
				for _, name := range args {
					fmt.Fprintf(cmd.OutOrStdout(), "space/%s is being deleted\n", name)
				}
				return nil
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done after %s; the deletion continues, see 'berth spaces'", timeout))
			defer cancel()
			for _, name := range args {
				if err := awaitDeleted(ctx, client, name, cmd.ErrOrStderr()); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "space/%s deleted\n", name)
			}
			return nil
		},
	}
	flags.AddDataDir(cmd, &dir)
	cmd.Flags().StringVar(&policy, "policy", "", "Delete, Retain, or Snapshot (default: spec.deletionPolicy of the space)")
	cmd.Flags().BoolVar(&waits, "wait", true, "wait until the spaces are deleted")
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for all spaces together")
	_ = cmd.RegisterFlagCompletionFunc("policy", cobra.FixedCompletions(
		[]string{string(v1alpha1.DeletionDelete), string(v1alpha1.DeletionRetain), string(v1alpha1.DeletionSnapshot)}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// awaitDeleted waits until the space is deleted, and prints what it waits for.
func awaitDeleted(ctx context.Context, client *control.Client, name string, out io.Writer) error {
	return progress.Await(ctx, out, "space/"+name, func(ctx context.Context) (bool, string, error) {
		var status shard.Status
		if err := client.Do(ctx, http.MethodGet, spacePath(name), &status); apierrors.IsNotFound(err) {
			return true, "", nil
		} else if err != nil {
			return false, "", err
		}
		return false, status.Conditions[0].Message, nil
	})
}
