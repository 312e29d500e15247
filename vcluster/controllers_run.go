// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
)

// controllersQuiet is how long a controller goes on when there is nothing left
// for it. Starting one takes milliseconds.
const controllersQuiet = 15 * time.Second

// controllers are a control plane's upstream controllers.
type controllers struct {
	*supervisor
	builder *controllerBuilder
}

// startControllers runs those of the controllers that c names for which there
// is work, and the others when there is. They don't follow what is aggregated.
func startControllers(
	ctx context.Context, c Config, id credentials, loopback *rest.Config, store *clientv3.Client, factory *ownedInformers,
	aggregated func(groupVersion string) bool,
) (*controllers, error) {
	builder, err := newControllerBuilder(c, id, loopback, factory.pool, aggregated)
	if err != nil {
		return nil, fmt.Errorf("build controllers: %w", err)
	}
	s := newSupervisor(c.Controllers, demands(c.ServingCA), &storeReader{store}, builder.build,
		c.ControllersQuiet, clock.RealClock{}, c.Logger)
	safego.Go(&s.running, "forget what was discovered", func() { builder.forget(s.ctx) }, nil)
	if err := s.start(ctx, factory.pool.Feed()); err != nil {
		s.stop()
		return nil, fmt.Errorf("start controllers: %w", err)
	}
	return &controllers{supervisor: s, builder: builder}, nil
}

// RunningControllers returns the names of the controllers that run now. Those
// for which there is no work do not.
func (p *ControlPlane) RunningControllers() []string {
	if p.controllers == nil {
		return nil
	}
	return p.controllers.names()
}
