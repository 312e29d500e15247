// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

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

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/snapshot"
)

func newSnapshotList(host *flags.Host) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "list [SPACE]",
		Short: "List snapshots of spaces",
		Long: `List snapshots by space, the newest first. SPACE/latest is the replica of a space with
continuous replication. Its age and its size are only in the list of that space.
With --from, the command also works while Berth isn't running.`,
		Example: `  berth snapshot list
  berth snapshot list demo --from file:///var/backups/berth`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: host.Names("spaces", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			space := strings.Join(args, "")
			list, err := listSnapshots(cmd.Context(), host.DataDir, space, from)
			if err != nil {
				return err
			}
			return printSnapshots(cmd.OutOrStdout(), cmd.ErrOrStderr(), list, time.Now())
		},
	}
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
	return manager.ListSnapshots(ctx, bucket, space)
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
		if info.Time.IsZero() { // a replica in a list of all spaces
			fmt.Fprintf(table, "%s\t-\t-\n", info.ID)
			continue
		}
		size := resource.NewQuantity((info.Bytes+1023)/1024*1024, resource.BinarySI)
		fmt.Fprintf(table, "%s\t%s\t%s\n", info.ID, duration.HumanDuration(now.Sub(info.Time)), size)
	}
	return errors.Join(table.Flush(), incomplete)
}
