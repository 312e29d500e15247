// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"

	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
)

// serverRun is an API server that runs.
type serverRun struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid when done is closed
}

func runServer(s *aggregatorapiserver.APIAggregator) (*serverRun, error) {
	prepared, err := s.PrepareRun()
	if err != nil {
		return nil, fmt.Errorf("prepare API server: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &serverRun{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = prepared.Run(ctx)
	}()
	return r, nil
}
