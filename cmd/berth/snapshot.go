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
		Short:   "Take, list, and restore snapshots of spaces",
		Long: `Take, list, and restore snapshots of spaces. 'berth up --snapshot-to URL' takes
snapshots on a schedule.

A snapshot contains all objects of a space and its keys. Protect it as you protect the
data directory. It doesn't contain the data of volumes.

Snapshots are stored in a directory or in object storage:

  file:///var/backups/berth
  s3://BUCKET/PREFIX?region=eu-west-1
  s3://BUCKET/PREFIX?endpoint=https://storage.example:9000&path-style=true

The running Berth reads the credentials for object storage from its environment
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), from
~/.aws/credentials, or from the role of its machine.`,
	}
	cmd.AddCommand(newSnapshotCreate(), newSnapshotList(), newSnapshotRestore())
	return cmd
}

func newSnapshotCreate() *cobra.Command {
	var dir, to string
	cmd := &cobra.Command{
		Use:   "create SPACE",
		Short: "Take a snapshot of a space",
		Long: `Take a snapshot of a space, awake or asleep, and print its name. The command needs a
running Berth.`,
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
	cmd.Flags().StringVar(&to, "to", "", "URL of the storage (default: --snapshot-to of the running Berth)")
	return cmd
}

func newSnapshotList() *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use:   "list [SPACE]",
		Short: "List snapshots of spaces",
		Long: `List snapshots by space, the newest first. With --from, the command also works while
Berth isn't running.`,
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
	cmd.Flags().StringVar(&from, "from", "", "URL of the storage (default: --snapshot-to of the running Berth)")
	return cmd
}

// listSnapshots asks the running server. If none runs, it reads the storage itself.
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

// printSnapshots prints the snapshots that were found, and fails if the list is incomplete.
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
		Long: `Restore a space from a snapshot. SNAPSHOT is a name that 'berth snapshot list' prints,
or the name of a space, for its newest snapshot. The snapshot doesn't contain the spec
of the Space object, so the spec doesn't change. If the object doesn't exist, Berth
creates it with defaults.

Without --as, the restore replaces the space. All changes since the snapshot are lost,
on the host, too. Kubeconfigs and tokens of the space remain valid. Berth keeps the
replaced store as store.db.replaced until the next restore. With --from, this also works
while Berth isn't running; the space continues from the snapshot when Berth starts.

With --as, the restore creates a second space from the snapshot, with its own Space
object and its own keys. Kubeconfigs and tokens of the first space aren't valid in it.
Berth issues new tokens for token Secrets, and services get new addresses. Pods start
again. Claims get new, empty volumes, because a snapshot doesn't contain the data of
volumes.

With --as and --replace, the restore replaces an existing space of that name, its
objects on the host, and its volumes. The space keeps its keys, so its kubeconfigs
remain valid and lead to the restored objects. If the restore fails, the space stays as
it was.

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
				return errors.New("--replace needs --as; without --as, the restore always replaces the space")
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
				fmt.Fprintf(cmd.ErrOrStderr(), "The space has an identity of its own: %d services get new addresses, %d claims get new, empty volumes, %d pods start again, and %d tokens are issued again.\n",
					c.Services, c.Claims, c.Pods, c.Tokens)
			}
			return nil
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().StringVar(&from, "from", "", "URL of the storage (default: --snapshot-to of the running Berth)")
	cmd.Flags().StringVar(&as, "as", "", "restore to a space of this name (default: the space of the snapshot)")
	cmd.Flags().BoolVar(&trust, "trust-dedicated", false, "open the store in Berth's own process, even if it comes from the pod of a dedicated space")
	cmd.Flags().BoolVar(&replace, "replace", false, "with --as, replace an existing space, its objects on the host, and its volumes")
	return cmd
}
