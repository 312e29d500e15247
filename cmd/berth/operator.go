// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/operator"
	"github.com/berth-dev/berth/platform/process"
)

func newOperator() *cobra.Command {
	var o operator.Config
	var kubeconfig, logFormat string
	var verbosity int
	cmd := &cobra.Command{
		Use:   "operator",
		Short: "Serve the Tenant objects of a host cluster",
		Long: `Serve the Tenant objects of a host cluster until the process is terminated. The Helm
chart charts/berth runs this command. 'berth up' does the same in its own process.

The operator creates a Space object for each Tenant, and sets the owners and limits of
all spaces of the tenant. A platform, such as 'berth serve', serves the Space objects.
The operator reads and writes objects of the host only, so it wakes no space. Spaces
work without it.

At its start, the operator waits until the host has the definitions of Berth's objects.
It creates the BerthConfiguration "berth", the Tenant "system", and the default tenant
if they don't exist. If it has the right to, it writes the admission policies that
protect tenants from being deleted by mistake.`,
		Example: `  berth operator
  berth operator --host-kubeconfig ~/.kube/config --metrics-listen 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if logFormat != logText && logFormat != logJSON {
				return fmt.Errorf("--log-format=%s: must be %s or %s", logFormat, logText, logJSON)
			}
			if o.Host, err = process.LoadHostConfig(kubeconfig); err != nil {
				return flags.Error(err)
			}
			if o.Logger, err = logTo(cmd.ErrOrStderr(), "", logFormat, verbosity); err != nil {
				return err
			}
			operator.TuneGC()
			return operator.New(o).Run(cmd.Context())
		},
	}
	cmd.SetUsageFunc(groupedUsage)
	inPod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	cmd.Flags().StringVar(&kubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster (default: the cluster in which the command runs as a pod)")
	cmd.Flags().BoolVar(&o.LeaderElection, "leader-elect", inPod, "let one of several operators work at a time, by a Lease (default: in a pod)")
	cmd.Flags().StringVar(&o.LeaseNamespace, "lease-namespace", "", "host namespace of the Lease (default: that of the pod, or "+operator.DefaultLeaseNamespace+")")
	cmd.Flags().StringVar(&o.ShardNamespace, "shard-namespace", "", "host namespace of the Shard objects and Leases of platforms with shards, as that of 'berth serve' (default: that of --lease-namespace)")
	cmd.Flags().StringVar(&o.DefaultTenant, "default-tenant", "", "name of the default tenant, as that of 'berth serve'; the operator writes it into the BerthConfiguration (default: that of the BerthConfiguration)")
	cmd.Flags().StringVar(&o.MetricsListen, "metrics-listen", "", "HOST:PORT of the operator's /metrics, /livez, and /readyz, over HTTP without authentication (default: not served)")
	cmd.Flags().StringVar(&logFormat, "log-format", logText, "text or json")
	cmd.Flags().IntVarP(&verbosity, "verbosity", "v", 0, "log level, 0 to 10")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
