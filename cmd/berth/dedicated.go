// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// dedicatedOptions are the flags of `berth dedicated`.
type dedicatedOptions struct {
	dataDir, hostKubeconfig, endpoint string
	idleAfter                         time.Duration
	pods                              podsOptions // where the process that runs this one serves them
	sync                              syncOptions
	nodes                             nodeOptions
	limits                            limitOptions
	settings                          settingsOptions
	network                           networkOptions
	traces                            traceOptions
	verbosity                         int
}

// newDedicated is the command that `berth up --dedicated` runs, once a space.
func newDedicated() *cobra.Command {
	var o dedicatedOptions
	cmd := &cobra.Command{
		Use:    "dedicated SPACE",
		Short:  "Run one space for a 'berth up --dedicated', until standard input ends",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			logs, err := openLogs(dedicatedDir(o.dataDir, args[0]), o.verbosity)
			if err != nil {
				return err
			}
			defer logs.close()
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, cmd.InOrStdin())
				cancel()
			}()
			return o.run(ctx, args[0], logs)
		},
	}
	o.addFlags(cmd)
	return cmd
}

func (o *dedicatedOptions) addFlags(cmd *cobra.Command) {
	addDataDir(cmd, &o.dataDir)
	cmd.Flags().StringVar(&o.hostKubeconfig, "host-kubeconfig", "", "kubeconfig of the host cluster; that which it is a pod of if empty")
	cmd.Flags().StringVar(&o.endpoint, "endpoint", "", "URL of the gateway")
	cmd.Flags().DurationVar(&o.idleAfter, "idle-after", 0, "put the space to sleep when it has been idle this long")
	o.pods.addFlags(cmd)
	o.sync.add(cmd)
	o.nodes.add(cmd)
	o.limits.add(cmd)
	o.settings.add(cmd)
	o.network.add(cmd)
	o.traces.add(cmd)
	cmd.Flags().IntVarP(&o.verbosity, "verbosity", "v", 0, "how much to write to the log")
}

func (o *dedicatedOptions) run(ctx context.Context, name string, logs *logs) error {
	config, err := hostConfig(o.hostKubeconfig)
	if err != nil {
		return err
	}
	sync, err := o.sync.options()
	if err != nil {
		return err
	}
	where, err := o.nodes.options(sync.Sync)
	if err != nil {
		return err
	}
	sync.NodeLabels = where.keys()
	limits, err := o.limits.options()
	if err != nil {
		return err
	}
	settings, err := o.settings.settings()
	if err != nil {
		return err
	}
	ca, err := pki.OpenCA(filepath.Join(o.dataDir, "pki"), "berth")
	if err != nil {
		return err
	}
	traces, sendTraces, err := o.traces.start(ctx, logs.logger)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		sendTraces(stop)
	}()
	closed, err := o.network.all(ctx, config, logs.logger)
	if err != nil {
		return err
	}
	spaces, err := shard.Start(ctx, shard.Config{
		Dir: filepath.Join(o.dataDir, "spaces"), Host: config, Sync: sync, ServingCA: ca.PEM,
		Endpoint: func(space string) string { return o.endpoint + gateway.Path(space) },
		Pods:     o.pods.endpoint(),
		Where:    where.of,
		Limits:   limits.of, Memory: shard.ProcessMemory(),
		Settings:  settings,
		Closed:    closed,
		IdleAfter: o.idleAfter, Traces: traces, Logger: logs.logger,
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := spaces.Stop(stop); err != nil {
			logs.logger.Error(err, "stop shard")
		}
	}()
	if err := spaces.Add(name); err != nil {
		return err
	}
	spaces.Visit(name)
	commands := http.NewServeMux()
	serveSpaces(commands, spaces)
	commands.Handle("GET "+metricPath, control.Answer(func(*http.Request) (any, error) {
		status, _ := spaces.Status(name)
		return spaceMetric(spaces.Space(name), filepath.Join(o.dataDir, "spaces", name), status, spaces.HostObjects()[name]), nil
	}))
	return dedicated.Serve(ctx, dedicatedDir(o.dataDir, name), spaces.Handler(name), commands, logs.logger)
}

func dedicatedDir(dataDir, space string) string {
	return filepath.Join(dataDir, "dedicated", space)
}

func dedicatedArgs(o dedicatedOptions, space string) []string {
	return slices.Concat([]string{
		"dedicated", space, "--data-dir", o.dataDir, "--host-kubeconfig", o.hostKubeconfig, "--endpoint", o.endpoint,
		"--idle-after", o.idleAfter.String(),
		"--pods-address", o.pods.address, "--pods-port", strconv.Itoa(int(o.pods.apiPort)), "--dns-port", strconv.Itoa(int(o.pods.dnsPort)),
		"--verbosity", strconv.Itoa(o.verbosity),
	}, o.traces.args(), o.sync.args(), o.nodes.args(), o.limits.args(), o.settings.args(), o.network.args())
}
