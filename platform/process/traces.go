// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"net"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/fielderror"
)

// Traces configures where traces of requests are sent.
type Traces struct {
	Endpoint   string // HOST:PORT of a collector that accepts OTLP over gRPC without TLS; empty turns traces off
	PerMillion int32  // how many of a million requests are traced
}

func (t *Traces) check() error {
	if t.Endpoint == "" {
		return nil
	}
	if _, _, err := net.SplitHostPort(t.Endpoint); err != nil {
		return fielderror.New("trace-endpoint", t.Endpoint, "must be HOST:PORT of an OTLP collector (gRPC): %w", err)
	}
	if t.PerMillion < 1 || t.PerMillion > 1_000_000 {
		return fielderror.New("trace-per-million", t.PerMillion, "must be from 1 to 1000000")
	}
	return nil
}

// Start starts tracing requests. If it is not configured, traces is nil. stop sends the remaining traces.
func (t *Traces) Start(ctx context.Context, version string, logger klog.Logger) (traces tracing.TracerProvider, stop func(context.Context), err error) {
	if t.Endpoint == "" {
		return nil, func(context.Context) {}, nil
	}
	traces, err = tracing.NewProvider(context.WithoutCancel(ctx), &tracingapi.TracingConfiguration{
		Endpoint: &t.Endpoint, SamplingRatePerMillion: &t.PerMillion,
	}, nil, []resource.Option{resource.WithAttributes(
		attribute.String("service.name", "berth"), attribute.String("service.version", version),
	)})
	if err != nil {
		return nil, nil, fielderror.New("trace-endpoint", t.Endpoint, "%w", err)
	}
	return traces, func(ctx context.Context) {
		if err := traces.Shutdown(ctx); err != nil {
			logger.Error(err, "Could not send the last traces")
		}
	}, nil
}
