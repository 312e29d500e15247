// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// sharedTraces are the process's, which an API server that stops must not shut
// down.
type sharedTraces struct{ trace.TracerProvider }

// Shutdown does nothing.
func (sharedTraces) Shutdown(context.Context) error { return nil }

// Tracer returns one whose spans are below the gateway's, whoever asks. Upstream takes up what a request says of a
// trace only if the user is in system:masters, and begins a trace of its own otherwise; but here the gateway says it,
// and no client.
func (t sharedTraces) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return followingTracer{t.TracerProvider.Tracer(name, options...)}
}

type followingTracer struct{ trace.Tracer }

// Start starts a span below the one in ctx, if there is one.
func (t followingTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	c := trace.NewSpanStartConfig(options...)
	if !c.NewRoot() || !trace.SpanContextFromContext(ctx).IsRemote() {
		return t.Tracer.Start(ctx, name, options...)
	}
	below := []trace.SpanStartOption{trace.WithSpanKind(c.SpanKind()), trace.WithAttributes(c.Attributes()...)}
	if at := c.Timestamp(); !at.IsZero() {
		below = append(below, trace.WithTimestamp(at))
	}
	return t.Tracer.Start(ctx, name, below...)
}

// traceTo has the handlers of an API server record spans, if there is a provider.
func traceTo(provider trace.TracerProvider, c *genericapiserver.Config) {
	if provider != nil {
		c.TracerProvider = sharedTraces{provider}
	}
}
