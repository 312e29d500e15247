// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// RunDedicated runs one space in this process, until ctx ends, for the platform whose [Config.DedicatedCommand] started
// it. Of the configuration, it uses DataDir, IdleAfter, Spec, Pods, Traces, Version, and Logger.
func RunDedicated(ctx context.Context, c Config, d DedicatedSpace) error {
	config, err := loadHostConfig(d.HostKubeconfig)
	if err != nil {
		return err
	}
	host, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	ca, err := pki.OpenCA(portKeys(c.DataDir), portCA)
	if err != nil {
		return err
	}
	traces, sendTraces, err := c.Traces.start(ctx, c.Version.Berth, c.Logger)
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		sendTraces(stop)
	}()
	closed, err := closedRanges(ctx, host, c.Spec.ClosedRanges, c.Logger)
	if err != nil {
		return err
	}
	spaces, err := shard.Start(ctx, shard.Config{
		Dir: spacesDir(c.DataDir), Host: config, Sync: c.Spec.Sync, ServingCA: ca.PEM,
		Endpoint: func(space string) string { return d.Endpoint + gateway.Path(space) },
		Pods:     c.Pods.endpoint(), Where: c.Spec.Placement,
		Limits: c.Spec.Limits, Memory: shard.ProcessMemory(),
		Settings: c.Spec.Settings, Closed: closed,
		IdleAfter: c.IdleAfter, Traces: traces, Logger: c.Logger,
	})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := spaces.Stop(stop); err != nil {
			c.Logger.Error(err, "stop shard")
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
		return spaceMetric(spaces.Space(d.Space), spaceDir(c.DataDir, d.Space), status, spaces.HostObjects()[d.Space]), nil
	}))
	return dedicated.Serve(ctx, DedicatedDir(c.DataDir, d.Space), spaces.Handler(d.Space), commands, c.Logger)
}
