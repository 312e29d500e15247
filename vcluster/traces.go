// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// sharedTraces is the provider of the process. An API server that stops must not shut it down.
type sharedTraces struct{ trace.TracerProvider }

// Shutdown does nothing.
func (sharedTraces) Shutdown(context.Context) error { return nil }

// Tracer returns a tracer whose spans are children of the gateway's. Upstream continues the trace of a request only if
// the user is in system:masters, and otherwise starts its own. Here, the gateway sets the trace, and clients can't.
func (t sharedTraces) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return followingTracer{t.TracerProvider.Tracer(name, options...)}
}

type followingTracer struct{ trace.Tracer }

// Start starts a span as a child of the one in ctx, if there is one.
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

// traceTo makes the handlers of an API server record spans, if there is a provider.
func traceTo(provider trace.TracerProvider, c *genericapiserver.Config) {
	if provider != nil {
		c.TracerProvider = sharedTraces{provider}
	}
}
