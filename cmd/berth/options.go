// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/berth-dev/berth/api/config/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/platform/manager"
)

// runOptions are the flags of the commands that run spaces. Most of them are fields of the platform's configuration; config
// joins the others to it, and the configuration file.
type runOptions struct {
	platform.Config
	file              string
	spaces, dedicated []string
	verbosity         int
}

// addFlags declares those that mean and default to the same in all commands. The
// others are each command's to declare.
func (o *runOptions) addFlags(cmd *cobra.Command) {
	addDataDir(cmd, &o.DataDir)
	cmd.Flags().StringVar(&o.file, "config", "", "configuration file, a PlatformConfiguration: a spec for all spaces, and spaces to create")
	cmd.Flags().StringVar(&o.PlatformName, "platform-name", v1alpha1.DefaultPlatformName, "serve the Space objects of the host whose spec.platformName is this; give each platform of a host a name of its own")
	cmd.Flags().StringSliceVar(&o.dedicated, "dedicated", nil, "names of spaces to create if they don't exist, and to run in a process of their own each (spec.isolation: Dedicated)")
	cmd.Flags().DurationVar(&o.IdleAfter, "idle-after", 15*time.Minute, "put a space to sleep when it has been idle this long, unless its spec.sleep says otherwise; 0 for never")
	cmd.Flags().IntVar(&o.SpacesMax, "spaces-max", 250, "most spaces to be awake at once, --dedicated ones not counted; 0 for no bound")
	cmd.Flags().IntVar(&o.DedicatedMax, "dedicated-max", 10, "most dedicated spaces; reckon with 512 MiB of memory for each")
	cmd.Flags().StringVar(&o.Snapshots.To, "snapshot-to", "", "URL of a directory or object storage for scheduled snapshots, see 'berth snapshot'; none are taken if empty")
	cmd.Flags().StringArrayVar(&o.Snapshots.AlsoTo, "snapshot-also-to", nil, "further URL that spec.snapshots.to of a space may name; can be given several times")
	cmd.Flags().DurationVar(&o.Snapshots.Every, "snapshot-every", time.Hour, "how often to take a snapshot of each space that has changed, unless its spec.snapshots says otherwise")
	cmd.Flags().IntVar(&o.Snapshots.Keep, "snapshot-keep", 24, "how many scheduled snapshots of each space to keep, unless its spec.snapshots says otherwise")
	cmd.Flags().StringVar(&o.Pods.Address, "pods-address", "", "IP of this machine or pod, at which the spaces' pods reach it without their own addresses being masked: serves them cluster DNS and kubernetes.default. Neither if empty; pods then have the host's DNS")
	cmd.Flags().StringVar(&o.Pods.Namespace, "pods-namespace", "", "namespace on the host of the pod that this process runs in; network policies then open its ports by --pods-selector, and by --pods-address otherwise")
	cmd.Flags().StringVar(&o.Pods.Selector, "pods-selector", "", "labels that select this process's pod in --pods-namespace, as KEY=VALUE,...")
	cmd.Flags().Uint16Var(&o.Pods.APIPort, "pods-port", 7444, "TLS port at --pods-address for kubernetes.default")
	cmd.Flags().Uint16Var(&o.Pods.DNSPort, "dns-port", 7453, "UDP and TCP port at --pods-address for cluster DNS")
	cmd.Flags().StringSliceVar(&o.Pods.Upstreams, "dns-upstream", nil, "IP or IP:PORT of resolvers for names outside of the spaces; those of /etc/resolv.conf if empty, 'none' for none")
	cmd.Flags().StringVar(&o.Pods.HostDomain, "host-domain", dns.DefaultDomain, "the host's own cluster domain, which tenants must not see into")
	cmd.Flags().StringVar(&o.MetricsListen, "metrics-listen", "", "HOST:PORT for the platform's own /metrics, /livez and /readyz, plain HTTP for whoever reaches it; none if empty")
	cmd.Flags().StringVar(&o.Traces.Endpoint, "trace-endpoint", "", "HOST:PORT of a collector that takes OTLP by gRPC without TLS, for traces of requests; none if empty")
	cmd.Flags().Int32Var(&o.Traces.PerMillion, "trace-per-million", 10_000, "how many of a million requests to trace")
	for _, flag := range []string{"platform-name", "dedicated", "pods-address", "pods-namespace", "pods-selector", "pods-port", "dns-port", "dns-upstream", "host-domain", "metrics-listen", "trace-endpoint"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// config is the whole configuration, except for what it needs logs for.
func (o *runOptions) config() (platform.Config, error) {
	c := o.Config
	info := readVersion()
	c.Version = manager.Version{Berth: info.Berth, Kubernetes: info.Kubernetes}
	executable, err := os.Executable()
	if err != nil {
		return c, fmt.Errorf("find the command for dedicated spaces: %w", err)
	}
	c.DedicatedCommand = func(file string) *exec.Cmd {
		return exec.Command(executable, "dedicated", "--config", file, "--verbosity", strconv.Itoa(o.verbosity))
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
		return c, fmt.Errorf("--config=%s: nodeAddresses=%s: want %s or %s", o.file, file.NodeAddresses, configv1alpha1.Hidden, configv1alpha1.Visible)
	}
	if c.Spaces, err = o.allSpaces(file.Spaces); err != nil {
		return c, err
	}
	if err = flagError(c.Complete()); err != nil && o.file != "" {
		err = fmt.Errorf("--config=%s: %w", o.file, err)
	}
	return c, err
}

// allSpaces are those of the file and of the flags. What a flag says of one that is in the file, too, counts more.
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

// flagError names the flag by which a value was set that is wrong.
func flagError(err error) error {
	if field, ok := errors.AsType[*fielderror.Error](err); ok {
		return fmt.Errorf("--%w", field)
	}
	return err
}
