// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	configv1alpha1 "github.com/berth-dev/berth/api/config/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/cmd/berth/flags"
	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/platform/manager"
)

// runOptions are the flags of the commands that run spaces. Most of them set fields of the platform's configuration;
// config adds the others and the configuration file.
type runOptions struct {
	platform.Config
	file              string
	spaces, dedicated []string
	verbosity         int
}

// addFlags declares the flags that have the same meaning and default in all commands. Each command declares its other
// flags.
func (o *runOptions) addFlags(cmd *cobra.Command) {
	flags.AddDataDir(cmd, &o.DataDir)
	cmd.Flags().StringVar(&o.file, "config", "", "file with a PlatformConfiguration, which contains defaults for all spaces, and spaces to create")
	cmd.Flags().StringVar(&o.PlatformName, "platform-name", v1alpha1.DefaultPlatformName, "serve the Space objects with this spec.platformName; give each Berth on a host its own name")
	cmd.Flags().StringVar(&o.EmulatedVersion, "emulated-version", "", "minor version of Kubernetes whose APIs and features the API servers of all spaces serve, such as 1.36, as with kube-apiserver (default: that of 'berth version')")
	cmd.Flags().StringSliceVar(&o.dedicated, "dedicated", nil, "names of spaces to create if they don't exist, and to make dedicated (spec.isolation: Dedicated)")
	cmd.Flags().DurationVar(&o.IdleAfter, "idle-after", 15*time.Minute, "put a space to sleep when it has been idle this long; spec.sleep of a space overrides it; 0 means never")
	cmd.Flags().IntVar(&o.SpacesMax, "spaces-max", 250, "maximum number of shared spaces that are awake at once; 0 means no limit")
	cmd.Flags().IntVar(&o.DedicatedMax, "dedicated-max", 10, "maximum number of dedicated spaces; plan 512 MiB of memory for each")
	cmd.Flags().StringVar(&o.StoreSecrets, "store-secrets", "", "host namespace of the Secrets that spec.store.secretName of spaces names (default: all stores are files)")
	cmd.Flags().StringVar(&o.Snapshots.To, "snapshot-to", "", "URL of a directory or object storage for scheduled snapshots, see 'berth snapshot' (default: no snapshots)")
	cmd.Flags().StringArrayVar(&o.Snapshots.AlsoTo, "snapshot-also-to", nil, "another URL that spaces can use in spec.snapshots.to; repeat the flag for several")
	cmd.Flags().DurationVar(&o.Snapshots.Every, "snapshot-every", time.Hour, "how often to take a snapshot of each space that has changed; spec.snapshots of a space overrides it")
	cmd.Flags().IntVar(&o.Snapshots.Keep, "snapshot-keep", 24, "number of scheduled snapshots to keep for each space; spec.snapshots of a space overrides it")
	cmd.Flags().StringVar(&o.Pods.Address, "pods-address", "", "IP of this machine or pod, on which it serves cluster DNS and kubernetes.default to the pods of spaces. Their source addresses must reach it unchanged (default: neither is served, and pods use the host's DNS)")
	cmd.Flags().StringVar(&o.Pods.Namespace, "pods-namespace", "", "host namespace of the pod in which this process runs. Network policies then allow it by --pods-selector (default: they allow it by --pods-address)")
	cmd.Flags().StringVar(&o.Pods.Selector, "pods-selector", "", "labels of the pod in which this process runs, KEY=VALUE,...")
	cmd.Flags().Uint16Var(&o.Pods.APIPort, "pods-port", 7444, "TLS port on --pods-address for kubernetes.default")
	cmd.Flags().Uint16Var(&o.Pods.DNSPort, "dns-port", 7453, "UDP and TCP port on --pods-address for cluster DNS")
	cmd.Flags().StringSliceVar(&o.Pods.Upstreams, "dns-upstream", nil, "IP or IP:PORT of DNS servers for names outside of the spaces, or 'none' (default: those of /etc/resolv.conf)")
	cmd.Flags().StringVar(&o.Pods.HostDomain, "host-domain", dns.DefaultDomain, "cluster domain of the host, whose names Berth doesn't resolve for tenants")
	cmd.Flags().StringVar(&o.Domain, "space-domain", "", "domain with a wildcard record for --listen, in which each space has a host name, SPACE.DOMAIN, for tools that drop the path of a URL (default: no host names)")
	cmd.Flags().StringVar(&o.Clients.ClientCA, "client-ca-file", "", "file with the CAs, in PEM, whose client certificates say which tenant a user is of: O=tenant:NAME, CN=USER, OU=GROUP (default: only spaces issue certificates)")
	cmd.Flags().StringVar(&o.Clients.Tokens, "token-auth-file", "", `file with lines TOKEN,USER,UID,"GROUP,...",,TENANT; without ,,TENANT the user is of the tenant "system" (default: only spaces issue tokens)`)
	cmd.Flags().StringVar(&o.Clients.Passwords, "basic-auth-file", "", `file with lines PASSWORD,USER,UID,"GROUP,...",,TENANT for HTTP basic authentication (default: no passwords)`)
	cmd.Flags().StringVar(&o.Audit.Logs.Dir, "audit-log-dir", "", "directory for a log of the requests to each tenant's spaces, TENANT.log, or '-' for the standard output (default: no logs)")
	cmd.Flags().IntVar(&o.Audit.Logs.MaxSize, "audit-log-maxsize", 20, "MiB of a tenant's log after which it is renamed and a new one begins")
	cmd.Flags().IntVar(&o.Audit.Logs.MaxBackups, "audit-log-maxbackup", 4, "number of full logs to keep of each tenant")
	cmd.Flags().StringVar(&o.Audit.Policy, "audit-policy-file", "", "file with a Policy of audit.k8s.io/v1 for tenants without a policy of their own (default: each request is recorded once, without bodies)")
	cmd.Flags().StringVar(&o.Audit.Webhook, "audit-webhook-config-file", "", "kubeconfig file for a server that gets the audit events of all tenants (default: only tenants have webhooks)")
	cmd.Flags().StringVar(&o.Clients.Issuers, "authentication-config", "", "file with an AuthenticationConfiguration (apiserver.config.k8s.io/v1), whose OpenID Connect providers say by a claim which tenant a user is of (default: no providers)")
	cmd.Flags().StringVar(&o.AuthorizationPolicy, "authorization-policy-file", "", "file with a Policy of abac.authorization.kubernetes.io/v1beta1 in each line, with spec.tenant of the user, and spec.space that is reached (default: no policies)")
	o.addWebhookFlags(cmd)
	cmd.Flags().StringVar(&o.MetricsListen, "metrics-listen", "", "HOST:PORT of Berth's own /metrics, /livez, and /readyz, over HTTP without authentication (default: not served)")
	cmd.Flags().StringVar(&o.Traces.Endpoint, "trace-endpoint", "", "HOST:PORT of an OTLP collector for traces of requests, over gRPC without TLS (default: no traces)")
	cmd.Flags().Int32Var(&o.Traces.PerMillion, "trace-per-million", 10_000, "number of requests to trace in a million")
	for _, flag := range []string{"platform-name", "dedicated", "pods-address", "pods-namespace", "pods-selector", "pods-port", "dns-port", "dns-upstream", "host-domain", "emulated-version", "metrics-listen", "trace-endpoint", "space-domain"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// config returns the whole configuration, except for what is set after logging has started.
func (o *runOptions) config() (platform.Config, error) {
	c := o.Config
	info := readVersion()
	c.Version = manager.Version{Berth: info.Berth, Kubernetes: info.Kubernetes}
	if c.EmulatedVersion != "" {
		c.Version.Kubernetes = "v" + c.EmulatedVersion
	}
	if v, err := utilversion.ParseGeneric(c.Version.Kubernetes); err == nil && !c.Peers.Enabled() {
		c.KubernetesVersion = utilversion.MajorMinor(v.Major(), v.Minor()).String()
	}
	executable, err := os.Executable()
	if err != nil {
		return c, fmt.Errorf("find the command for dedicated spaces: %w", err)
	}
	c.DedicatedCommand = func(file string) *exec.Cmd {
		command := exec.Command(executable, "dedicated", "--config", file, "--verbosity", strconv.Itoa(o.verbosity))
		command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool {
			return strings.HasPrefix(entry, "AWS_") // the credentials for snapshots, which only the platform takes
		})
		return command
	}
	file, err := readConfig(o.file)
	if err != nil {
		return c, err
	}
	c.SpaceDefaults, c.AllowedSync = file.SpaceDefaults, file.AllowedSync
	c.IngressAnnotations, c.ReservedLabels = file.IngressAnnotations, file.ReservedLabels
	switch file.NodeAddresses {
	case "", configv1alpha1.Hidden:
	case configv1alpha1.Visible:
		c.ShowNodeAddresses = true
	default:
		return c, fmt.Errorf("--config=%s: nodeAddresses=%s: must be %s or %s", o.file, file.NodeAddresses, configv1alpha1.Hidden, configv1alpha1.Visible)
	}
	if c.Spaces, err = o.allSpaces(file.Spaces); err != nil {
		return c, err
	}
	if err = flags.Error(c.Complete()); err != nil && o.file != "" {
		err = fmt.Errorf("--config=%s: %w", o.file, err)
	}
	return c, err
}

// allSpaces returns the spaces of the file and of the flags. If both have a space, the flags take precedence.
func (o *runOptions) allSpaces(spaces []v1alpha1.Space) ([]v1alpha1.Space, error) {
	for flag, names := range map[string][]string{"space": o.spaces, "dedicated": o.dedicated} {
		for _, name := range names {
			if err := isolation.CheckSpaceName(name); err != nil {
				return nil, fmt.Errorf("--%s: %w", flag, err)
			}
		}
	}
	for _, name := range slices.Concat(o.spaces, o.dedicated) {
		i := slices.IndexFunc(spaces, func(s v1alpha1.Space) bool { return s.Name == name })
		if i < 0 {
			i = len(spaces)
			spaces = append(spaces, v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		if slices.Contains(o.dedicated, name) {
			spaces[i].Spec.Isolation = v1alpha1.Dedicated
		}
	}
	return spaces, nil
}
