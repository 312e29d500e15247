// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/operator"
)

// operatorPause is between two runs of the operator, if one ended by itself.
const operatorPause = 5 * time.Second

// startOperator runs the operator in this process, if it is enabled. If it loses its Lease or can't reach the host, it is run again:
// the spaces don't need it.
func (p *Platform) startOperator(context.Context) error {
	if !p.config.Operator {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	safego.Go(&group, "run the operator", func() {
		for ctx.Err() == nil {
			err := operator.New(operator.Config{
				Host: p.host.Config(), LeaderElection: !p.config.Host.Embedded, ShardNamespace: p.config.Peers.Namespace, PlatformName: p.config.PlatformName, DefaultTenant: p.config.Clients.DefaultTenant, Logger: p.logger.WithName("operator"),
			}).Run(ctx)
			if ctx.Err() != nil {
				return
			}
			p.logger.Error(err, "The operator ended; Tenant objects wait until it runs again", "after", operatorPause)
			select {
			case <-ctx.Done():
			case <-time.After(operatorPause):
			}
		}
	}, nil)
	p.onStop(func(context.Context) {
		cancel()
		group.Wait()
	})
	return nil
}
