// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
)

// serveOptions are the flags of `berth serve`.
type serveOptions struct {
	runOptions
	logFormat string
	pods      podOptions
}

// podOptions configure the pods of dedicated spaces.
type podOptions struct {
	template string
	// at is API,COMMANDS,DATADIR, for tests: the addresses and the data directory of processes that replace the pods.
	at []string
}

func (o *podOptions) read() (pods manager.DedicatedPods, err error) {
	if o.template == "" {
		return pods, nil
	}
	if pods.Template, err = pod.ReadTemplate(o.template); err != nil {
		return pods, fmt.Errorf("--dedicated-pods: %w", err)
	}
	if len(o.at) == 3 {
		pods.Address, pods.DataDir = dedicated.Addresses{API: o.at[0], Commands: o.at[1]}, o.at[2]
	}
	return pods, nil
}

func newServe() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run spaces on the cluster in which this command runs as a pod",
		Long: `Run spaces on the host cluster until the process is terminated. The host is the
cluster in which the command runs as a pod, or the cluster of --host-kubeconfig. The
Helm chart charts/berth runs this command.

It works as 'berth up --host-kubeconfig' does, with these differences: it logs to
standard error, and it starts even if it serves no space or if some spaces fail to
start. It retries those.

The kubeconfig of each space's admin is in --data-dir, for 'berth kubeconfig'. With
--kubeconfig-secrets, it is also in the Secret SPACE-kubeconfig, in the keys
"kubeconfig" and "value". Berth renews it twice a day.`,
		Example: `  berth serve --data-dir /data --listen :7443 --advertise https://berth.berth.svc \
    --space team-a,team-b --kubeconfig-secrets berth`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer shard.TuneGC()()
			if o.logFormat != logText && o.logFormat != logJSON {
				return fmt.Errorf("--log-format=%s: must be %s or %s", o.logFormat, logText, logJSON)
			}
			config, err := o.config()
			if err != nil {
				return err
			}
			if config.DedicatedPods, err = o.pods.read(); err != nil {
				return err
			}
			if config.Logger, err = logTo(cmd.ErrOrStderr(), o.DataDir, o.logFormat, o.verbosity); err != nil {
				return err
			}
			config.Progress = func(format string, args ...any) { config.Logger.Info(fmt.Sprintf(format, args...)) }
			config.Serving = func(p *platform.Platform) {
				config.Logger.Info("Serving spaces", "endpoint", p.Endpoint("SPACE"), "spaces", len(p.Manager().Names()))
			}
			return flags.Error(platform.New(config).Run(cmd.Context()))
		},
	}
	cmd.SetUsageFunc(groupedUsage)
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.Listen, "listen", ":7443", "HOST:PORT on which the API servers of all spaces listen with TLS")
	cmd.Flags().StringVar(&o.Advertise, "advertise", "", "URL of --listen as clients reach it, https://HOST or https://HOST:PORT, for kubeconfigs and the server certificate (default: the address of --listen)")
	cmd.Flags().StringVar(&o.TLS.Cert, "tls-cert-file", "", "file with the certificate of --listen for the host of --advertise, which is read again when it changes (default: a certificate of Berth's own CA)")
	cmd.Flags().StringVar(&o.TLS.Key, "tls-key-file", "", "file with the private key of --tls-cert-file")
	cmd.Flags().StringVar(&o.TLS.CA, "tls-ca-file", "", "file with the CA that issued --tls-cert-file. Kubeconfigs trust it in addition to Berth's own CA. If the file doesn't exist or is empty, they trust the CAs of clients' systems instead")
	cmd.Flags().StringSliceVar(&o.spaces, "space", nil, "names of spaces to create if they don't exist, in addition to those of --config and of the host")
	cmd.Flags().StringVar(&o.Host.Kubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster (default: the cluster in which the command runs as a pod)")
	cmd.Flags().StringVar(&o.SpaceRole, "space-role", "", "ClusterRole to bind to each space's service account in its host namespace. Berth then needs no rights to write roles, CRDs, or admission policies: install them with the chart (default: Berth writes a Role for each space, the CRD, and the policies)")
	cmd.Flags().StringVar(&o.KubeconfigSecrets, "kubeconfig-secrets", "", "host namespace in which Berth writes a Secret with each space's kubeconfig (default: no Secrets)")
	cmd.Flags().StringVar(&o.pods.template, "dedicated-pods", "", "file with the StatefulSet from which Berth makes the pod of each dedicated space; the chart contains one (default: a dedicated space is a child process)")
	cmd.Flags().StringSliceVar(&o.pods.at, "dedicated-pods-at", nil, "API,COMMANDS,DATADIR of the processes that replace such pods in tests")
	_ = cmd.Flags().MarkHidden("dedicated-pods-at")
	cmd.Flags().StringVar(&o.Peers.Name, "shard", "", "name of this process among several with the same --platform-name, such as that of its pod. Each has some of the spaces, in its own --data-dir, and forwards the requests for others (default: this is the only process)")
	cmd.Flags().StringVar(&o.Peers.Namespace, "shard-namespace", "", "host namespace with the Shard objects, the Leases, and the Secrets berth-shards and berth-shards-pods of --shard")
	cmd.Flags().StringVar(&o.Peers.Address, "shard-address", "", "IP:PORT of this process at which it serves the other shards")
	cmd.Flags().StringVar(&o.Peers.Zone, "shard-zone", "", "zone of this process's machine, over which the spaces of a tenant are spread (default: none)")
	cmd.Flags().StringVar(&o.Peers.Selector, "shard-space-selector", "", "labels of the Space objects that this process gets, such as stage=canary. No process without such a selector gets them (default: those that no process selects)")
	cmd.Flags().DurationVar(&o.Peers.DrainTimeout, "shard-drain-timeout", 0, "how long a process that is told to stop waits at most until its spaces have moved to other shards; 0 means that they stay, and are not served until it is back")
	cmd.Flags().StringVar(&o.ArgoCDNamespace, "argocd-namespace", "", "host namespace of Argo CD, in which Berth writes a cluster Secret for each space (default: no Secrets)")
	cmd.Flags().StringVar(&o.logFormat, "log-format", logText, "text or json")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "log level, 0 to 10")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
