// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"sync"

	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/spacequota"
	"github.com/berth-dev/berth/quota"
)

// openShares makes what gives spaces their shares of the quotas of their tenants.
func (m *Manager) openShares() (err error) {
	m.shares, err = spacequota.New(spacequota.Options{
		Host: m.env.Host, Of: m.quotaOf, Retry: m.retryWorkloads, Refused: m.refused, Clock: clock.RealClock{}, Logger: m.logger,
	})
	return err
}

// giveShares gives spaces larger shares when they need them, until the platform stops.
func (m *Manager) giveShares(context.Context) error {
	life, end := context.WithCancel(context.Background())
	var group sync.WaitGroup
	safego.Go(&group, "give shares of quotas", func() { m.shares.Run(life) }, nil)
	m.undoStart.add(func(context.Context) { end(); group.Wait() })
	return nil
}

// quotaOf returns the tenant of a space of this platform, which is empty if it has none, and the quota of the space itself.
func (m *Manager) quotaOf(space string) (tenant string, ceiling quota.Amounts) {
	if object := m.objects.Get(space); object != nil {
		tenant = object.Spec.TenantName
	} else if applied := m.applied.get(space); applied != nil { // the watch is behind
		tenant = applied.Spec.TenantName
	}
	if tenant == "" {
		return "", nil
	}
	return tenant, m.config.Specs.Of(space).Ceiling
}

// retryWorkloads has a space that is awake in this process create what a quota refused.
func (m *Manager) retryWorkloads(space string) {
	if running := m.shard.Space(space); running != nil {
		running.RetryWorkloads()
	}
}
