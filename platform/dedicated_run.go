// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// RunDedicated runs one space in this process, until ctx ends, for the platform whose [Config.DedicatedCommand] started it.
func RunDedicated(ctx context.Context, d *DedicatedSpace, version Version, logger klog.Logger) error {
	config, err := loadHostConfig(d.HostKubeconfig)
	if err != nil {
		return err
	}
	host, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	ca, err := pki.OpenCA(portKeys(d.DataDir), portCA)
	if err != nil {
		return err
	}
	traces, sendTraces, err := d.Traces.start(ctx, version.Berth, logger)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		sendTraces(stop)
	}()
	closed := closedRanges(ctx, host, logger)
	spaces, err := shard.Start(ctx, shard.Config{
		Dir: spacesDir(d.DataDir), Host: config, Sync: d.specs.sync, ServingCA: ca.PEM,
		Endpoint: func(space string) string { return d.Endpoint + gateway.Path(space) },
		Settings: func(space string) shard.Settings { return d.specs.shardSettings(space, closed) },
		Pods:     d.Pods.endpoint(), Memory: shard.ProcessMemory(),
		Idle: d.specs.idle, Traces: traces, Logger: logger,
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
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
		return spaceMetric(spaces.Space(d.Space), spaceDir(d.DataDir, d.Space), status, spaces.HostObjects()[d.Space]), nil
	}))
	return dedicated.Serve(ctx, DedicatedDir(d.DataDir, d.Space), spaces.Handler(d.Space), commands, logger)
}
