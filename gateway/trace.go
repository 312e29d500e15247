// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traced serves a request within a span. It always starts a new trace, because a client must not decide what is
// recorded and in which trace. The space's API server gets the span as its parent.
func traced(provider trace.TracerProvider, space string, next http.Handler) http.Handler {
	tracer := provider.Tracer("github.com/berth-dev/berth/gateway")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := tracer.Start(r.Context(), "gateway", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("berth.space", space), attribute.String("http.request.method", r.Method)))
		defer span.End()
		r = r.Clone(ctx)
		r.Header.Del("Baggage")
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
		next.ServeHTTP(w, r)
	})
}
