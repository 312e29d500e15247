// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/platform/manager"
)

func newRotate() *cobra.Command {
	var dir string
	var rotation manager.Rotation
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "rotate SPACE [--ca] [--service-account-key [--overlap DURATION]]",
		Short: "Replace keys of a space to revoke its credentials",
		Long: `Replace keys of a space, awake or asleep. The space's pods continue to run. Its API
server restarts in less than a second: it closes watches and other open requests, and
new requests wait.

--ca replaces the CA of the space's client certificates. This revokes all client
certificates and kubeconfigs of the space. Berth issues new admin credentials in the
kubeconfig that 'berth kubeconfig SPACE' prints and in the Secret on the host. Hand them
out again.

--service-account-key replaces the key that signs service-account tokens. For the time
of --overlap, tokens of the old key stay valid, and pods get new ones. Restart clients
that read their token only once within this time. If the key or a token was stolen, use
--overlap=0s, which revokes the old tokens at once. Token Secrets (type
kubernetes.io/service-account-token) become invalid together with the old key: delete
them and create them again.

To revoke all access, use both flags with --overlap=0s. If the command fails, run it
again. It works whether Berth is running or not.`,
		Example: `  berth rotate demo --ca
  berth rotate demo --service-account-key
  berth rotate demo --ca --service-account-key --overlap=0s`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeSpaces(&dir),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("overlap") && !rotation.ServiceAccountKey {
				return fmt.Errorf("--overlap=%s needs --service-account-key; --ca revokes certificates at once", rotation.Overlap)
			}
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("not done after %s", timeout))
			defer cancel()
			if err := manager.RotateKeys(ctx, dir, args[0], rotation); err != nil {
				return flags.Error(err)
			}
			out := cmd.OutOrStdout()
			if rotation.CA {
				fmt.Fprintf(out, "space/%s has a new CA; get its new kubeconfig with 'berth kubeconfig %[1]s'\n", args[0])
			}
			if rotation.ServiceAccountKey {
				fmt.Fprintf(out, "space/%s has a new service-account key; tokens of the old key become invalid in %s\n", args[0], rotation.Overlap)
			}
			return nil
		},
	}
	flags.AddDataDir(cmd, &dir)
	cmd.Flags().BoolVar(&rotation.CA, "ca", false, "replace the CA of client certificates, and revoke all certificates that it issued")
	cmd.Flags().BoolVar(&rotation.ServiceAccountKey, "service-account-key", false, "replace the key that signs service-account tokens")
	cmd.Flags().DurationVar(&rotation.Overlap, "overlap", manager.DefaultTokenOverlap, "how long tokens of the old service-account key stay valid, up to 168h")
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to wait")
	return cmd
}
