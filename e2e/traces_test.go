// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracesv1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// spans are what a collector was sent.
type spans struct {
	collector.UnimplementedTraceServiceServer
	mu  sync.Mutex
	all []*tracesv1.Span
}

func (s *spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			s.all = append(s.all, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *spans) list() []*tracesv1.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// X4: a request's trace shows the gateway and, below, the space's API server;
// what a stranger says of traces is not taken up.
func TestRequestsAreTraced(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	received, server := &spans{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, received)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })

	b := start(t, "--trace-endpoint", listener.Addr().String(), "--trace-per-million", "1000000")
	demo := b.demo(t)
	const foreign = "0af7651916cd43dd8448eb211c80319c"
	if err := demo.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/configmaps").
		SetHeader("traceparent", "00-"+foreign+"-b7ad6b7169203331-01").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		all := received.list()
		for _, below := range all {
			if below.Name != "GET /api/v1/namespaces/{:namespace}/secrets" {
				continue
			}
			for _, above := range all {
				if above.Name == "gateway" && string(above.SpanId) == string(below.ParentSpanId) && string(above.TraceId) == string(below.TraceId) {
					return nil
				}
			}
		}
		return fmt.Errorf("of %d spans, none is the gateway's above the API server's", len(all))
	})
	for _, span := range received.list() {
		if hex.EncodeToString(span.TraceId) == foreign {
			t.Errorf("span %s is in a stranger's trace", span.Name)
		}
	}
}
