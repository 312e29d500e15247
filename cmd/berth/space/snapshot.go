// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/snapshot"
)

// snapshotsCommand returns the command 'berth snapshot'.
func snapshotsCommand(host *flags.Host) *cobra.Command {
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
	cmd.AddCommand(snapshotCommand(host, "create", "berth snapshot create"), newSnapshotList(host), restoreCommand(host, "berth snapshot restore"))
	return cmd
}

func snapshotCommand(host *flags.Host, verb, name string) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   verb + " SPACE",
		Short: "Take a snapshot of a space",
		Long: `Take a snapshot of a space, awake or asleep, and print its name. 'berth help snapshot'
describes snapshots.

The command needs a running Berth on this machine, or in this container.
'berth snapshot create' and 'berth space snapshot' are the same command.`,
		Example: fmt.Sprintf(`  %s demo
  %[1]s demo --to file:///var/backups/berth`, name),
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: host.Names("spaces", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var info snapshot.Info
			query := url.Values{"space": {args[0]}, "to": {to}}
			err := socket(host, func(client *control.Client) error {
				return client.Do(cmd.Context(), http.MethodPost, "/snapshots?"+query.Encode(), &info)
			})
			if err != nil {
				return explainSocket(cmd, host, err, "take a snapshot", "berth snapshot create "+args[0])
			}
			fmt.Fprintf(cmd.OutOrStdout(), "snapshot/%s taken\n", info.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "URL of the storage (default: --snapshot-to of the running Berth)")
	return cmd
}
