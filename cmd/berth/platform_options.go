// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/tenancy"
)

// runOptions are the flags of the commands that run spaces.
type runOptions struct {
	dataDir        string
	listen         string
	advertise      string // URL of listen, as clients reach it; as listen says if empty
	spaces         []string
	dedicated      []string
	hostKubeconfig string
	spaceRole      string // ClusterRole of the spaces' accounts; a Role of their own each if empty
	idleAfter      time.Duration
	spacesMax      int
	metricsListen  string
	snapshots      snapshotOptions
	pods           podsOptions
	traces         traceOptions
	sync           syncOptions
	nodes          nodeOptions
	limits         limitOptions
	settings       settingsOptions
	network        networkOptions
	verbosity      int
}

// addFlags declares those that mean and default to the same in all commands. The
// others are each command's to declare.
func (o *runOptions) addFlags(cmd *cobra.Command) {
	addDataDir(cmd, &o.dataDir)
	cmd.Flags().StringSliceVar(&o.dedicated, "dedicated", nil, "names of spaces to run in a process of their own each, instead of sharing this one")
	cmd.Flags().DurationVar(&o.idleAfter, "idle-after", 15*time.Minute, "put a space to sleep when it has been idle this long; 0 for never")
	cmd.Flags().IntVar(&o.spacesMax, "spaces-max", 250, "most spaces to be awake at once, --dedicated ones not counted; 0 for no bound")
	cmd.Flags().StringVar(&o.snapshots.to, "snapshot-to", "", "URL of a directory or object storage for scheduled snapshots, see 'berth snapshot'; none are taken if empty")
	cmd.Flags().DurationVar(&o.snapshots.every, "snapshot-every", time.Hour, "how often to take a snapshot of each space that has changed")
	cmd.Flags().IntVar(&o.snapshots.keep, "snapshot-keep", 24, "how many scheduled snapshots of each space to keep")
	o.pods.addFlags(cmd)
	cmd.Flags().StringVar(&o.metricsListen, "metrics-listen", "", "HOST:PORT for the platform's own /metrics, /livez and /readyz, plain HTTP for whoever reaches it; none if empty")
	o.traces.add(cmd)
	o.sync.add(cmd)
	o.nodes.add(cmd)
	o.limits.add(cmd)
	o.settings.add(cmd)
	o.network.add(cmd)
	for _, flag := range []string{"trace-endpoint", "metrics-listen", "dedicated"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// listenHost is the HOST of --listen, empty if that is all of the machine's
// addresses: it then does not say by which of them clients come.
func (o *runOptions) listenHost() string {
	host, _, err := net.SplitHostPort(o.listen)
	if ip := net.ParseIP(host); err != nil || ip != nil && ip.IsUnspecified() {
		return ""
	}
	return host
}

// check refuses what means nothing, and drops what is said twice.
func (o *runOptions) check() error {
	slices.Sort(o.dedicated)
	o.dedicated = slices.Compact(o.dedicated)
	var once []string
	for _, name := range o.spaces {
		if !slices.Contains(once, name) && !slices.Contains(o.dedicated, name) {
			once = append(once, name)
		}
	}
	o.spaces = once
	switch {
	case o.idleAfter < 0:
		return fmt.Errorf("--idle-after=%s: want a time, or 0 for never", o.idleAfter)
	case o.spacesMax < 0:
		return fmt.Errorf("--spaces-max=%d: want a number, or 0 for no bound", o.spacesMax)
	}
	if err := o.snapshots.check(); err != nil {
		return err
	}
	if err := o.traces.check(); err != nil {
		return err
	}
	if err := o.pods.check(); err != nil {
		return err
	}
	if _, err := o.network.ranges(); err != nil {
		return err
	}
	synced, err := o.sync.options()
	if err != nil {
		return err
	}
	if _, err := o.nodes.options(synced.Sync); err != nil {
		return err
	}
	if _, err := o.limits.options(); err != nil {
		return err
	}
	if _, err := o.settings.settings(); err != nil {
		return err
	}
	for flag, names := range map[string][]string{"--space": o.spaces, "--dedicated": o.dedicated} {
		for _, name := range names {
			if err := tenancy.CheckSpaceName(name); err != nil {
				return fmt.Errorf("%s: %w", flag, err)
			}
		}
	}
	return nil
}
