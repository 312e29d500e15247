// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"
)

// traceOptions are the flags about traces.
type traceOptions struct {
	endpoint   string
	perMillion int32
}

func (o *traceOptions) check() error {
	if o.endpoint == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(o.endpoint); err != nil {
		return fmt.Errorf("--trace-endpoint=%s: want HOST:PORT of a collector that takes OTLP by gRPC: %w", o.endpoint, err)
	}
	if o.perMillion < 1 || o.perMillion > 1_000_000 {
		return fmt.Errorf("--trace-per-million=%d: want 1 to 1000000", o.perMillion)
	}
	return nil
}

// add declares the flags.
func (o *traceOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.endpoint, "trace-endpoint", "", "HOST:PORT of a collector that takes OTLP by gRPC without TLS, for traces of requests; none if empty")
	cmd.Flags().Int32Var(&o.perMillion, "trace-per-million", 10_000, "how many of a million requests to trace")
}

func (o *traceOptions) args() []string {
	return []string{"--trace-endpoint", o.endpoint, "--trace-per-million", strconv.Itoa(int(o.perMillion))}
}

// start has requests traced, if that was asked for: traces is nil if it was not.
// stop sends what is left.
func (o *traceOptions) start(ctx context.Context, logger klog.Logger) (traces tracing.TracerProvider, stop func(context.Context), err error) {
	if o.endpoint == "" {
		return nil, func(context.Context) {}, nil
	}
	traces, err = tracing.NewProvider(context.WithoutCancel(ctx), &tracingapi.TracingConfiguration{
		Endpoint: &o.endpoint, SamplingRatePerMillion: &o.perMillion,
	}, nil, []resource.Option{resource.WithAttributes(
		attribute.String("service.name", "berth"), attribute.String("service.version", readVersion().Berth),
	)})
	if err != nil {
		return nil, nil, fmt.Errorf("--trace-endpoint=%s: %w", o.endpoint, err)
	}
	return traces, func(ctx context.Context) {
		if err := traces.Shutdown(ctx); err != nil {
			logger.Error(err, "send the last traces")
		}
	}, nil
}

func (p *platform) startTracing(ctx context.Context) error {
	traces, stop, err := p.options.traces.start(ctx, p.logger)
	if err != nil {
		return err
	}
	p.traces = traces
	p.onStop(stop)
	return nil
}
