// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/shard/dedicated"
)

// serveOptions are the flags of `berth serve`.
type serveOptions struct {
	runOptions
	logFormat string
	pods      podOptions
}

// podOptions say how dedicated spaces are pods.
type podOptions struct {
	template string
	// at is API,COMMANDS,DATADIR, for tests: where what runs in place of the pods listens, and has its data.
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
		Short: "Run spaces on the cluster that this is a pod of",
		Long: `Run spaces on the cluster that this is a pod of, or on that of
--host-kubeconfig, until the process is told to stop. The chart charts/berth runs
it. Each Space object of that cluster whose spec.platformName is --platform-name is
a space: see 'berth up'.

It does what 'berth up --host-kubeconfig' does, as a service should: it logs to
standard error, runs on with whichever of its spaces start, and tries the others
again. It starts without any space, too.

The kubeconfig of each space's admin is in --data-dir, for 'berth kubeconfig', and
with --kubeconfig-secrets also in a Secret named SPACE-kubeconfig, under the keys
"kubeconfig" and "value". It is written anew when it is renewed, twice a day.`,
		Example: `  berth serve --data-dir /data --listen :7443 --advertise https://berth.berth.svc \
    --space team-a,team-b --kubeconfig-secrets berth`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.logFormat != logText && o.logFormat != logJSON {
				return fmt.Errorf("--log-format=%s: want %s or %s", o.logFormat, logText, logJSON)
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
				config.Logger.Info("serving", "advertised", p.Endpoint("SPACE"), "spaces", len(p.Manager().Names()))
			}
			return flagError(platform.New(config).Run(cmd.Context()))
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.Listen, "listen", ":7443", "HOST:PORT of the one TLS port that serves all APIs")
	cmd.Flags().StringVar(&o.Advertise, "advertise", "", "URL by which clients reach that port: https://HOST or https://HOST:PORT. Kubeconfigs lead there, and the certificate is good for it; as --listen says if empty")
	cmd.Flags().StringSliceVar(&o.spaces, "space", nil, "names of spaces to create if they don't exist, besides those of --config; other Space objects of the host are served, too")
	cmd.Flags().StringVar(&o.Host.Kubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; that which this is a pod of if empty")
	cmd.Flags().StringVar(&o.SpaceRole, "space-role", "", "ClusterRole that the spaces' accounts get in their namespaces, so that Berth needs no right to write roles; a Role of their own each if empty. With it, the definition of Space objects and the admission policies must exist on the host, as the chart installs them; Berth installs them if empty")
	cmd.Flags().StringVar(&o.KubeconfigSecrets, "kubeconfig-secrets", "", "namespace of the host for Secrets with the spaces' kubeconfigs; none are written if empty")
	cmd.Flags().StringVar(&o.pods.template, "dedicated-pods", "", "file with the StatefulSet of which dedicated spaces' pods are made, each with a volume and an account of its own, as the chart has it; dedicated spaces are processes of this machine if empty")
	cmd.Flags().StringSliceVar(&o.pods.at, "dedicated-pods-at", nil, "API,COMMANDS,DATADIR of what runs in place of such pods, for tests")
	_ = cmd.Flags().MarkHidden("dedicated-pods-at")
	cmd.Flags().StringVar(&o.ArgoCDNamespace, "argocd-namespace", "", "namespace of the host in which Argo CD runs, for Secrets by which it knows the spaces as clusters; none are written if empty")
	cmd.Flags().StringVar(&o.logFormat, "log-format", logText, "text or json")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to log (0 to 10)")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
