// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/registry"
)

// controllersQuiet is how long a controller goes on when there is nothing left
// for it. Starting one takes milliseconds.
const controllersQuiet = 15 * time.Second

// Running are a control plane's upstream controllers.
type Running struct {
	*supervisor
	builder *controllerBuilder
}

// Config says which controllers to run, and what they work with.
type Config struct {
	// Names are the controllers', as in k8s.io/kubernetes/cmd/kube-controller-manager/names.
	Names []string
	// Quiet is how long a controller that has nothing to do any more goes on.
	Quiet time.Duration
	// HiddenNodes says that pods run on nodes that are not in the API.
	HiddenNodes bool
	// ServingCA is the PEM bundle that verifies the API's address.
	ServingCA []byte
	// Credentials are the control plane's.
	Credentials credentials.Set
	// Loopback calls the API with all rights.
	Loopback *rest.Config
	// Store is what the API server keeps its objects in.
	Store *clientv3.Client
	// Informers follow the store.
	Informers *informer.Pool
	// Aggregated reports whether a group's version is served by a pod. Controllers don't follow it.
	Aggregated func(groupVersion string) bool
	// Account bounds what they take. Nothing is bounded if it is nil.
	Account *bounds.Account
	Logger  klog.Logger
}

// Start runs those of the controllers that c names for which there
// is work, and the others when there is.
func Start(ctx context.Context, c Config) (*Running, error) {
	if c.Quiet <= 0 {
		c.Quiet = controllersQuiet
	}
	builder, err := newControllerBuilder(c)
	if err != nil {
		return nil, fmt.Errorf("build controllers: %w", err)
	}
	s := newSupervisor(c.Names, demands(c.ServingCA), &registry.Reader{Client: c.Store}, builder.build, c.Quiet, clock.RealClock{}, c.Logger)
	safego.Go(&s.running, "forget what was discovered", func() { builder.forget(s.ctx) }, nil)
	if err := s.start(ctx, c.Informers.Feed()); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start controllers: %w", err)
	}
	return &Running{supervisor: s, builder: builder}, nil
}
