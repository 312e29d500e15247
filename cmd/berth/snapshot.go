// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/snapshot"
)

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "snapshot",
		Aliases: []string{"snapshots"},
		Short:   "Take, list and restore snapshots of spaces",
		Long: `Take, list and restore snapshots of spaces.

A snapshot holds all objects of a space, and the keys that the space is known by:
keep it as safe as the data directory itself. It holds nothing of what is in
volumes. 'berth up --snapshot-to URL' takes them by itself.

A place for snapshots is a directory or object storage:

  file:///var/backups/berth
  s3://BUCKET/PREFIX?region=eu-west-1
  s3://BUCKET/PREFIX?endpoint=https://storage.example:9000&path-style=true

Credentials for object storage are those of the berth that runs: its environment
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), its file
~/.aws/credentials, or its machine's role.`,
	}
	cmd.AddCommand(newSnapshotCreate(), newSnapshotList(), newSnapshotRestore())
	return cmd
}

func newSnapshotCreate() *cobra.Command {
	var dir, to string
	cmd := &cobra.Command{
		Use:   "create SPACE",
		Short: "Take a snapshot of a space, awake or asleep",
		Example: `  berth snapshot create demo
  berth snapshot create demo --to file:///var/backups/berth`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			var info snapshot.Info
			query := url.Values{"space": {args[0]}, "to": {to}}
			if err := control.NewClient(dir).Do(cmd.Context(), http.MethodPost, "/snapshots?"+query.Encode(), &info); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "snapshot/%s taken\n", info.ID)
			return nil
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().StringVar(&to, "to", "", "URL of where to put it; where scheduled ones go if empty")
	return cmd
}

func newSnapshotList() *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use:   "list [SPACE]",
		Short: "List snapshots, the newest of each space first",
		Example: `  berth snapshot list
  berth snapshot list demo --from file:///var/backups/berth`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			space := strings.Join(args, "")
			list, err := listSnapshots(cmd.Context(), dir, space, from)
			if err != nil {
				return err
			}
			return printSnapshots(cmd.OutOrStdout(), cmd.ErrOrStderr(), list, time.Now())
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "URL of where they are; where scheduled ones go if empty")
	return cmd
}

// listSnapshots asks the berth that runs or, if none does, looks itself.
func listSnapshots(ctx context.Context, dir, space, from string) (list manager.SnapshotList, err error) {
	query := url.Values{"space": {space}, "from": {from}}
	err = control.NewClient(dir).Do(ctx, http.MethodGet, "/snapshots?"+query.Encode(), &list)
	if from == "" || !errors.Is(err, control.ErrNotRunning) {
		return list, err
	}
	bucket, err := snapshot.Open(from)
	if err != nil {
		return list, err
	}
	list.Snapshots, err = bucket.List(ctx, space)
	return list, err
}

// printSnapshots prints what was found, and fails if that is not all.
func printSnapshots(out, hints io.Writer, list manager.SnapshotList, now time.Time) error {
	var incomplete error
	if len(list.Failures) > 0 {
		incomplete = fmt.Errorf("the list is not complete: %s", strings.Join(list.Failures, "; "))
	}
	if len(list.Snapshots) == 0 {
		if incomplete == nil {
			fmt.Fprintln(hints, "No snapshots found.")
		}
		return incomplete
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SNAPSHOT\tAGE\tSIZE")
	for _, info := range list.Snapshots {
		size := resource.NewQuantity((info.Bytes+1023)/1024*1024, resource.BinarySI)
		fmt.Fprintf(table, "%s\t%s\t%s\n", info.ID, duration.HumanDuration(now.Sub(info.Time)), size)
	}
	return errors.Join(table.Flush(), incomplete)
}

func newSnapshotRestore() *cobra.Command {
	var dir, from, as string
	var replace, trust bool
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT [--as SPACE [--replace]]",
		Short: "Restore a space from a snapshot",
		Long: `Restore a space as it was when a snapshot was taken. SNAPSHOT is a name that
'berth snapshot list' prints, or that of a space, for its newest. The spec of the
Space object isn't in the snapshot, and doesn't change. If there is no object, one is
created with all defaults.

Restored under its own name, a space is stopped, whatever state it is in, and
wakes as it was then: what came later is gone, on the host too. What was given
out for it, kubeconfigs and tokens, works on; the store that was there is kept
beside the new one as store.db.replaced until the next time. This works without
a berth that runs, too: the next one continues with the restored space.

With --as, the snapshot becomes a space of its own, beside the one it was taken
of, with an object of its own. It gets an identity of its own: nothing that was given out for the other
works in it, tokens in Secrets are issued anew, and services have addresses of
its own. Pods start anew, and claims get new, empty volumes: what is in
volumes is not in a snapshot.

With --replace, too, it takes the place of all that a space of that name holds,
on the host too, volumes among it. That space keeps its own keys: its
kubeconfigs work on, and lead to what was restored. If the restore fails, it is
as it was.

The store in a snapshot of a dedicated space comes from the space's pod, which a
tenant may have taken over. A dedicated space is restored in its pod. In all other
cases, Berth opens the store in its own process, and only with --trust-dedicated.`,
		Example: `  berth snapshot restore demo
  berth snapshot restore demo/20260102T030405.000Z --as demo-copy
  berth snapshot restore demo --as staging --replace
  berth snapshot restore demo --from file:///var/backups/berth`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if replace && as == "" {
				return errors.New("--replace goes with --as; under its own name, a snapshot takes the space's place anyway")
			}
			var result manager.Restored
			query := url.Values{"id": {args[0]}, "from": {from}, "as": {as}}
			if replace {
				query.Set("replace", "")
			}
			if trust {
				query.Set("trust-dedicated", "")
			}
			err := control.NewClient(dir).Do(cmd.Context(), http.MethodPost, "/snapshots/restore?"+query.Encode(), &result)
			if errors.Is(err, control.ErrNotRunning) && as == "" && from != "" {
				result.Space, result.Snapshot, err = manager.RestoreStopped(cmd.Context(), dir, args[0], from, trust)
			}
			if err != nil {
				return flagError(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "space/%s restored from snapshot/%s\n", result.Space, result.Snapshot)
			if as != "" {
				c := result.Changes
				fmt.Fprintf(cmd.ErrOrStderr(), "It is a space of its own: %d services have addresses of its own, %d claims get new, empty volumes, %d pods start anew, %d tokens are issued anew.\n",
					c.Services, c.Claims, c.Pods, c.Tokens)
			}
			return nil
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "URL of where it is; where scheduled ones go if empty")
	cmd.Flags().StringVar(&as, "as", "", "name of the space to make of it; its own if empty")
	cmd.Flags().BoolVar(&trust, "trust-dedicated", false, "open the store in Berth's own process, even if it comes from the pod of a dedicated space")
	cmd.Flags().BoolVar(&replace, "replace", false, "with --as, take the place of all that a space of that name holds")
	return cmd
}
