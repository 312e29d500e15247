// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
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

// startTracing has requests traced, if that was asked for.
func (p *platform) startTracing(ctx context.Context) (err error) {
	o := p.options.traces
	if o.endpoint == "" {
		return nil
	}
	p.traces, err = tracing.NewProvider(context.WithoutCancel(ctx), &tracingapi.TracingConfiguration{
		Endpoint: &o.endpoint, SamplingRatePerMillion: &o.perMillion,
	}, nil, []resource.Option{resource.WithAttributes(
		attribute.String("service.name", "berth"), attribute.String("service.version", readVersion().Berth),
	)})
	if err != nil {
		return fmt.Errorf("--trace-endpoint=%s: %w", o.endpoint, err)
	}
	p.onStop(func(ctx context.Context) {
		if err := p.traces.Shutdown(ctx); err != nil {
			p.logger.Error(err, "send the last traces")
		}
	})
	return nil
}
