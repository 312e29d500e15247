// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// dedicatedStopTimeout bounds a clean stop of a dedicated space; what is not done by then is done as after a crash, at the next
// start.
const dedicatedStopTimeout = 20 * time.Second

// RunDedicated runs one space in this process, until ctx ends, for the platform whose [Options.DedicatedCommand] started it.
func RunDedicated(ctx context.Context, d *process.Dedicated, version Version, logger klog.Logger) error {
	config, err := process.LoadHostConfig(d.HostKubeconfig)
	if err != nil {
		return err
	}
	host, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	ca, err := pki.OpenCA(datadir.PortKeys(d.DataDir), datadir.PortCA)
	if err != nil {
		return err
	}
	traces, sendTraces, err := d.Traces.Start(ctx, version.Berth, logger)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), dedicatedStopTimeout)
		defer cancel()
		sendTraces(stop)
	}()
	closed := closedRanges(ctx, host, logger)
	spaces, err := shard.Start(ctx, shard.Config{
		Dir: datadir.Spaces(d.DataDir), Host: config, Sync: d.Specs.Sync(), ServingCA: ca.PEM,
		Endpoint: func(space string) string { return d.Endpoint + gateway.Path(space) },
		Settings: func(space string) shard.Settings { return d.Specs.Shard(space, closed) },
		Pods:     d.Pods.Endpoint(), Memory: shard.ProcessMemory(),
		Idle: d.Specs.Idle, Traces: traces, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), dedicatedStopTimeout)
		defer cancel()
		if err := spaces.Stop(stop); err != nil {
			logger.Error(err, "stop shard")
		}
	}()
	if err := spaces.Add(d.Space); err != nil {
		return err
	}
	spaces.WarmUp(d.Space)
	commands := http.NewServeMux()
	serveSpaces(commands, spaces)
	commands.Handle("GET "+metricPath, control.Answer(func(*http.Request) (any, error) {
		status, _ := spaces.Status(d.Space)
		return spaceMetric(spaces.Space(d.Space), datadir.Space(d.DataDir, d.Space), status, spaces.HostObjects()[d.Space]), nil
	}))
	return dedicated.Serve(ctx, datadir.Dedicated(d.DataDir, d.Space), spaces.Handler(d.Space), commands, logger)
}
