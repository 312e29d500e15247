// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/operator/manifest"
)

func newApply() *cobra.Command {
	var kubeconfig string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "apply FILE...",
		Short: "Apply objects of Berth's API to the host",
		Long: `Apply the objects in YAML files to the host cluster: Tenants, TenantOwners,
Publications, CRDShares, Spaces, and the BerthConfiguration. The command creates objects
that don't exist, and changes those that do as far as the file sets fields. If a field
was in an earlier file and isn't in this one, the command removes it. It deletes no object.

The command retries until --timeout expires, because the definitions of the objects
may not be installed yet.

The Helm chart charts/berth runs this command with its values 'tenants' and
'configuration'.`,
		Example: "  berth apply --host-kubeconfig ~/.berth/host.kubeconfig tenants.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("--host-kubeconfig=%s: %w", kubeconfig, err)
			}
			host, err := client.New(config, client.Options{})
			if err != nil {
				return fmt.Errorf("make client of the host: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			for _, path := range args {
				text, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				objects, err := manifest.Read(text)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				if err := manifest.Apply(ctx, host, objects); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				for _, object := range objects {
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s applied\n", object.GetKind(), object.GetName())
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster (default: the cluster in which the command runs as a pod)")
	cmd.Flags().DurationVar(&timeout, "timeout", actTimeout, "how long to retry")
	return cmd
}
