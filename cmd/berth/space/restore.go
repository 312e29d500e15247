// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package space

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/manager"
)

func restoreCommand(host *flags.Host, name string) *cobra.Command {
	var from, as string
	var replace, trust bool
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT [--as SPACE [--replace]]",
		Short: "Restore a space from a snapshot",
		Long: `Restore a space from a snapshot. SNAPSHOT is a name that 'berth snapshot list' prints,
or the name of a space, for its newest snapshot. SPACE/latest is the replica of a space
with continuous replication. The snapshot doesn't contain the spec of the Space object,
so the spec doesn't change. If the object doesn't exist, Berth creates it with defaults.

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
cases, Berth opens the store in its own process, and only with --trust-dedicated.

'berth snapshot restore' and 'berth space restore' are the same command.`,
		Example: fmt.Sprintf(`  %s demo
  %[1]s demo/20260102T030405.000Z --as demo-copy
  %[1]s demo/latest
  %[1]s demo --as staging --replace
  %[1]s demo --from file:///var/backups/berth`, name),
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
			err := socket(host, func(client *control.Client) error {
				return client.Do(cmd.Context(), http.MethodPost, "/snapshots/restore?"+query.Encode(), &result)
			})
			if errors.Is(err, control.ErrNotRunning) && as == "" && from != "" && !host.Elsewhere() {
				result.Space, result.Snapshot, err = manager.RestoreStopped(cmd.Context(), host.DataDir, args[0], from, trust)
			}
			if err != nil {
				return explainSocket(cmd, host, flags.Error(err), "restore a space", "berth snapshot restore "+args[0])
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
	cmd.Flags().StringVar(&from, "from", "", "URL of the storage (default: --snapshot-to of the running Berth)")
	cmd.Flags().StringVar(&as, "as", "", "restore to a space of this name (default: the space of the snapshot)")
	cmd.Flags().BoolVar(&trust, "trust-dedicated", false, "open the store in Berth's own process, even if it comes from the pod of a dedicated space")
	cmd.Flags().BoolVar(&replace, "replace", false, "with --as, replace an existing space, its objects on the host, and its volumes")
	return cmd
}
