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
	"github.com/berth-dev/berth/shard/dedicated"
)

// openShares makes what gives spaces their shares of the quotas of their tenants.
func (m *Manager) openShares() (err error) {
	m.shares, err = spacequota.New(spacequota.Options{
		Host: m.env.Host, Of: m.quotaOf, Spaces: m.applied.names, Serves: m.serves, Start: m.start, Retry: m.retryWorkloads, Limited: m.quotaChanged, Refused: m.refused,
		Clock: clock.RealClock{}, Logger: m.logger,
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

// serves reports whether the platform serves a space, which is not being deleted.
func (m *Manager) serves(space string) bool {
	object := m.objects.Get(space)
	return m.applied.get(space) != nil && !m.deletions.has(space) && (object == nil || object.DeletionTimestamp.IsZero())
}

// retryWorkloads has a space that is awake in this process create what a quota refused.
func (m *Manager) retryWorkloads(space string) {
	if running := m.shard.Space(space); running != nil {
		running.RetryWorkloads()
		return
	}
	if process := m.processes.get(space); process != nil {
		go safego.Run("have a dedicated space try again", func() { // what gets lost is tried again later
			_ = process.AnswerQuota(context.Background(), quota.Answer{})
		}, nil)
	}
}

// followQuota answers the process of a dedicated space that asks for a larger share of its quota, until ctx ends.
func (m *Manager) followQuota(ctx context.Context, space string, process *dedicated.Process) {
	if tenant, _ := m.quotaOf(space); tenant == "" {
		return
	}
	process.FollowQuota(ctx, func(ctx context.Context, wanted quota.Wanted) quota.Answer {
		return m.shares.Answer(ctx, space, wanted)
	})
}
