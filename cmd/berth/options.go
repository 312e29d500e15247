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

	"github.com/berth-dev/berth/dns"
	"github.com/berth-dev/berth/platform"
)

// runOptions are the flags of the commands that run spaces. Most of them are fields of the platform's configuration; the
// others are what is said of spaces, which config joins to it.
type runOptions struct {
	platform.Config
	spaceOptions
	verbosity int
}

// spaceOptions are the flags that say what spaces are to be, of all or of one.
type spaceOptions struct {
	sync     syncOptions
	nodes    nodeOptions
	limits   limitOptions
	settings settingsOptions
	network  networkOptions
}

// addFlags declares those that mean and default to the same in all commands. The
// others are each command's to declare.
func (o *runOptions) addFlags(cmd *cobra.Command) {
	addDataDir(cmd, &o.DataDir)
	cmd.Flags().StringSliceVar(&o.Dedicated, "dedicated", nil, "names of spaces to run in a process of their own each, instead of sharing this one")
	cmd.Flags().DurationVar(&o.IdleAfter, "idle-after", 15*time.Minute, "put a space to sleep when it has been idle this long; 0 for never")
	cmd.Flags().IntVar(&o.SpacesMax, "spaces-max", 250, "most spaces to be awake at once, --dedicated ones not counted; 0 for no bound")
	cmd.Flags().StringVar(&o.Snapshots.To, "snapshot-to", "", "URL of a directory or object storage for scheduled snapshots, see 'berth snapshot'; none are taken if empty")
	cmd.Flags().DurationVar(&o.Snapshots.Every, "snapshot-every", time.Hour, "how often to take a snapshot of each space that has changed")
	cmd.Flags().IntVar(&o.Snapshots.Keep, "snapshot-keep", 24, "how many scheduled snapshots of each space to keep")
	addPodsFlags(cmd, &o.Pods)
	cmd.Flags().StringVar(&o.MetricsListen, "metrics-listen", "", "HOST:PORT for the platform's own /metrics, /livez and /readyz, plain HTTP for whoever reaches it; none if empty")
	addTraceFlags(cmd, &o.Traces)
	o.spaceOptions.addFlags(cmd)
	for _, flag := range []string{"metrics-listen", "dedicated"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

func addPodsFlags(cmd *cobra.Command, pods *platform.Pods) {
	cmd.Flags().StringVar(&pods.Address, "pods-address", "", "IP of this machine or pod, at which the spaces' pods reach it without their own addresses being masked: serves them cluster DNS and kubernetes.default. Neither if empty; pods then have the host's DNS")
	cmd.Flags().Uint16Var(&pods.APIPort, "pods-port", 7444, "TLS port at --pods-address for kubernetes.default")
	cmd.Flags().Uint16Var(&pods.DNSPort, "dns-port", 7453, "UDP and TCP port at --pods-address for cluster DNS")
	cmd.Flags().StringSliceVar(&pods.Upstreams, "dns-upstream", nil, "IP or IP:PORT of resolvers for names outside of the spaces; those of /etc/resolv.conf if empty, 'none' for none")
	cmd.Flags().StringVar(&pods.HostDomain, "host-domain", dns.DefaultDomain, "the host's own cluster domain, which tenants must not see into")
	for _, flag := range []string{"pods-address", "pods-port", "dns-port", "dns-upstream", "host-domain"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

func addTraceFlags(cmd *cobra.Command, traces *platform.Traces) {
	cmd.Flags().StringVar(&traces.Endpoint, "trace-endpoint", "", "HOST:PORT of a collector that takes OTLP by gRPC without TLS, for traces of requests; none if empty")
	cmd.Flags().Int32Var(&traces.PerMillion, "trace-per-million", 10_000, "how many of a million requests to trace")
	_ = cmd.RegisterFlagCompletionFunc("trace-endpoint", cobra.NoFileCompletions)
}

func (o *spaceOptions) addFlags(cmd *cobra.Command) {
	o.sync.add(cmd)
	o.nodes.add(cmd)
	o.limits.add(cmd)
	o.settings.add(cmd)
	o.network.add(cmd)
}

// spec checks what is said of spaces.
func (o *spaceOptions) spec() (spec platform.SpaceConfig, err error) {
	if spec.ClosedRanges, err = o.network.ranges(); err != nil {
		return spec, err
	}
	if spec.Sync, err = o.sync.options(); err != nil {
		return spec, err
	}
	nodes, err := o.nodes.options(spec.Sync.Sync)
	if err != nil {
		return spec, err
	}
	limits, err := o.limits.options()
	if err != nil {
		return spec, err
	}
	spec.Settings, err = o.settings.settings()
	spec.Sync.NodeLabels, spec.Placement, spec.Limits = nodes.keys(), nodes.of, limits.of
	return spec, err
}

// args are the flags again, for the process of a dedicated space.
func (o *spaceOptions) args() []string {
	return slices.Concat(o.sync.args(), o.nodes.args(), o.limits.args(), o.settings.args(), o.network.args())
}

// config is the whole configuration, except for what it needs logs for.
func (o *runOptions) config() (platform.Config, error) {
	c := o.Config
	info := readVersion()
	c.Version = platform.Version{Berth: info.Berth, Kubernetes: info.Kubernetes}
	executable, err := os.Executable()
	if err != nil {
		return c, fmt.Errorf("find the command for dedicated spaces: %w", err)
	}
	c.DedicatedCommand = func(d platform.DedicatedSpace) *exec.Cmd {
		return exec.Command(executable, dedicatedArgs(o, d)...)
	}
	if c.Spec, err = o.spec(); err != nil {
		return c, err
	}
	return c, flagError(c.Complete())
}

// dedicatedArgs are the arguments of `berth dedicated`, with the flags that say the same as these options.
func dedicatedArgs(o *runOptions, d platform.DedicatedSpace) []string {
	return slices.Concat([]string{
		"dedicated", d.Space, "--data-dir", o.DataDir, "--host-kubeconfig", d.HostKubeconfig, "--endpoint", d.Endpoint,
		"--idle-after", o.IdleAfter.String(),
		"--pods-address", o.Pods.Address, "--pods-port", strconv.Itoa(int(o.Pods.APIPort)), "--dns-port", strconv.Itoa(int(o.Pods.DNSPort)),
		"--trace-endpoint", o.Traces.Endpoint, "--trace-per-million", strconv.Itoa(int(o.Traces.PerMillion)),
		"--verbosity", strconv.Itoa(o.verbosity),
	}, o.args())
}

// flagError names the flag by which a value was set that is wrong.
func flagError(err error) error {
	if field, ok := errors.AsType[*platform.FieldError](err); ok {
		return fmt.Errorf("--%w", field)
	}
	return err
}
