// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// serveOptions are the flags of `berth serve`.
type serveOptions struct {
	runOptions
	kubeconfigSecrets, logFormat string
}

func newServe() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run spaces on the cluster that this is a pod of",
		Long: `Run spaces on the cluster that this is a pod of, or on that of
--host-kubeconfig, until the process is told to stop. The chart charts/berth runs
it.

It does what 'berth up --host-kubeconfig' does, as a service should: it logs to
standard error, runs on with whichever of its spaces start, and tries the others
again.

The kubeconfig of each space's admin is in --data-dir, for 'berth kubeconfig', and
with --kubeconfig-secrets also in a Secret named SPACE-kubeconfig, under the key
"kubeconfig". It is written anew when it is renewed.`,
		Example: `  berth serve --data-dir /data --listen :7443 --advertise https://berth.berth.svc \
    --space team-a,team-b --kubeconfig-secrets berth`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			logger, err := logTo(cmd.ErrOrStderr(), o.dataDir, o.logFormat, o.verbosity)
			if err != nil {
				return err
			}
			p := &platform{options: o.runOptions, logger: logger, persevere: true}
			p.secrets.namespace = o.kubeconfigSecrets
			p.say = func(format string, args ...any) { logger.Info(fmt.Sprintf(format, args...)) }
			p.openHost = p.reachHost
			p.serves = func() { logger.Info("serving", "advertised", p.endpoint("SPACE"), "spaces", len(p.spaceNames())) }
			p.explain = func() {}
			return p.run(cmd.Context())
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.listen, "listen", ":7443", "HOST:PORT of the one TLS port that serves all APIs")
	cmd.Flags().StringVar(&o.advertise, "advertise", "", "URL by which clients reach that port: https://HOST or https://HOST:PORT. Kubeconfigs lead there, and the certificate is good for it; as --listen says if empty")
	cmd.Flags().StringSliceVar(&o.spaces, "space", nil, "names of the spaces to start, made if they are not there")
	cmd.Flags().StringVar(&o.hostKubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; that which this is a pod of if empty")
	cmd.Flags().StringVar(&o.spaceRole, "space-role", "", "ClusterRole that the spaces' accounts get in their namespaces, so that Berth needs no right to write roles; a Role of their own each if empty")
	cmd.Flags().StringVar(&o.kubeconfigSecrets, "kubeconfig-secrets", "", "namespace of the host for Secrets with the spaces' kubeconfigs; none are written if empty")
	cmd.Flags().StringVar(&o.logFormat, "log-format", logText, "text or json")
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to log (0 to 10)")
	_ = cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{logText, logJSON}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *serveOptions) check() error {
	o.advertise = strings.TrimSuffix(o.advertise, "/")
	if o.advertise != "" {
		u, err := url.Parse(o.advertise)
		if err == nil && (u.Scheme != "https" || u.Hostname() == "" || o.advertise != "https://"+u.Host) {
			err = errors.New("want https://HOST or https://HOST:PORT")
		}
		if err != nil {
			return fmt.Errorf("--advertise=%s: %w", o.advertise, err)
		}
	}
	if o.kubeconfigSecrets != "" {
		if problems := validation.IsDNS1123Label(o.kubeconfigSecrets); len(problems) > 0 {
			return fmt.Errorf("--kubeconfig-secrets=%s: want a namespace: %s", o.kubeconfigSecrets, problems[0])
		}
	}
	if o.logFormat != logText && o.logFormat != logJSON {
		return fmt.Errorf("--log-format=%s: want %s or %s", o.logFormat, logText, logJSON)
	}
	return o.runOptions.check()
}
