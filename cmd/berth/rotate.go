// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform/manager"
)

func newRotate() *cobra.Command {
	var dir string
	var rotation manager.Rotation
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "rotate SPACE [--ca] [--service-account-key [--overlap DURATION]]",
		Short: "Rotate keys of a space, to revoke its credentials",
		Long: `Rotate keys of a space, awake or asleep. Its pods run on. Its API server restarts,
which takes less than a second: watches and other requests under way end, and new
requests wait.

With --ca, the CA of the client certificates of the space is replaced. All client
certificates and kubeconfigs that were issued for the space are refused from then
on; so this is how to revoke them. The kubeconfig that 'berth kubeconfig SPACE'
prints, and the Secret on the host, are issued anew; hand them out again.

With --service-account-key, the key that signs service-account tokens is replaced.
Tokens of the old key are accepted for the time of --overlap, in which pods get new
ones; clients that read their token once have to be restarted within that time. With
--overlap=0s they are refused at once: say so if the key or a token was stolen.
Tokens in Secrets (type kubernetes.io/service-account-token) end with the old key:
delete these Secrets, and make them again.

To be sure that nobody keeps access, rotate both with --overlap=0s. This works
without a berth that runs, too. If the command fails, run it again.`,
		Example: `  berth rotate demo --ca
  berth rotate demo --service-account-key
  berth rotate demo --ca --service-account-key --overlap=0s`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("overlap") && !rotation.ServiceAccountKey {
				return fmt.Errorf("--overlap=%s: it is for --service-account-key; certificates are revoked at once", rotation.Overlap)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done within %s", timeout))
			defer cancel()
			if err := manager.RotateKeys(ctx, dir, args[0], rotation); err != nil {
				return flagError(err)
			}
			out := cmd.OutOrStdout()
			if rotation.CA {
				fmt.Fprintf(out, "space/%s has a new CA: print its kubeconfig anew\n", args[0])
			}
			if rotation.ServiceAccountKey {
				fmt.Fprintf(out, "space/%s has a new service-account key: tokens of the old one end in %s\n", args[0], rotation.Overlap)
			}
			return nil
		},
	}
	addDataDir(cmd, &dir)
	cmd.Flags().BoolVar(&rotation.CA, "ca", false, "replace the CA of client certificates, and revoke all that it issued")
	cmd.Flags().BoolVar(&rotation.ServiceAccountKey, "service-account-key", false, "replace the key that signs service-account tokens")
	cmd.Flags().DurationVar(&rotation.Overlap, "overlap", manager.DefaultTokenOverlap, "how long tokens of the old service-account key are accepted, up to 168h")
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to wait")
	return cmd
}
