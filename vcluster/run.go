// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"

	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"

	"github.com/berth-dev/berth/internal/safego"
)

// serverRun is an API server that runs.
type serverRun struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid when done is closed
}

func runServer(s *aggregatorapiserver.APIAggregator) *serverRun {
	// The aggregator's own PrepareRun adds OpenAPI to this: see documents.
	prepared := s.GenericAPIServer.PrepareRun()
	ctx, cancel := context.WithCancel(context.Background())
	r := &serverRun{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = safego.Call("run the API server", func() error { return prepared.RunWithContext(ctx) })
	}()
	return r
}
