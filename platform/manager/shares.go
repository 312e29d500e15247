// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/api/v1alpha1"
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

// TenantOf returns the tenant of a space of this platform; "" if it has none.
func (m *Manager) TenantOf(space string) string {
	if object := m.objects.Get(space); object != nil {
		return object.Spec.TenantName
	}
	if applied := m.applied.get(space); applied != nil { // the watch is behind
		return applied.Spec.TenantName
	}
	return ""
}

// HasTenant reports whether a tenant has a space here.
func (m *Manager) HasTenant(tenant string) bool {
	return m.TenantOf(tenant) == tenant || // the space of its name, as nearly always
		slices.ContainsFunc(m.objects.All(), func(space *v1alpha1.Space) bool { return space.Spec.TenantName == tenant })
}

// quotaOf returns the tenant of a space of this platform, which is empty if it has none, and the quota of the space itself.
func (m *Manager) quotaOf(space string) (tenant string, ceiling quota.Amounts) {
	if tenant = m.TenantOf(space); tenant == "" {
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

// refusals are what quotas have refused to spaces, until events say so.
type refusals struct {
	mu sync.Mutex
	of map[string]map[corev1.ResourceName]*quota.Exceeded // by space
}

// add notes a refusal, of each resource the last one.
func (r *refusals) add(space string, why *quota.Exceeded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string]map[corev1.ResourceName]*quota.Exceeded{}
	}
	if r.of[space] == nil {
		r.of[space] = map[corev1.ResourceName]*quota.Exceeded{}
	}
	for name := range why.Limited {
		r.of[space][name] = why.Only(name)
	}
}

// take returns the refusals of a space, and forgets them.
func (r *refusals) take(space string) map[corev1.ResourceName]*quota.Exceeded {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.of[space]
	delete(r.of, space)
	return taken
}

// refused has an event say what a quota refused to a space. It does not block.
func (m *Manager) refused(space string, why *quota.Exceeded) {
	m.refusals.add(space, why)
	m.changed(space)
}

// recordRefusals records an event about each resource of which a quota refused something to a space, at most one in a minute.
func (m *Manager) recordRefusals(ctx context.Context, object *v1alpha1.Space) {
	taken := m.refusals.take(object.Name)
	for _, name := range slices.Sorted(maps.Keys(taken)) {
		hash := fnv.New32a() // names of resources have characters that those of objects can't have
		_, _ = hash.Write([]byte(name))
		m.recordEvent(ctx, object, corev1.EventTypeWarning, v1alpha1.ReasonQuotaExceeded, fmt.Sprintf("quota-%x-%x", hash.Sum32(), time.Now().Unix()/60), taken[name].Error()+"; delete objects, or raise the quota")
	}
}

// quotaUses knows how spaces use their quotas on the host. The zero value is ready to use. It is safe for concurrent use.
type quotaUses struct{ changes, last sync.Map }

// changed is told that a quota has changed since it was read.
func (u *quotaUses) changed(space string) { u.changes.Store(space, struct{}{}) }

// take reports whether a quota has changed, and forgets that.
func (u *quotaUses) take(space string) bool {
	_, changed := u.changes.LoadAndDelete(space)
	return changed
}

// saw is told what was read. It must not be changed any more.
func (u *quotaUses) saw(space string, read *v1alpha1.QuotaStatus) { u.last.Store(space, read) }

// seen returns what was read last in this process; nil if nothing was.
func (u *quotaUses) seen(space string) *v1alpha1.QuotaStatus {
	last, _ := u.last.Load(space)
	read, _ := last.(*v1alpha1.QuotaStatus)
	return read
}

func (u *quotaUses) forget(space string) {
	u.changes.Delete(space)
	u.last.Delete(space)
}

// reportFor is how long a tenant gets the same answer about its quota, so that its questions are not the host's.
const reportFor = 5 * time.Second

// tenantQuota returns what tells a space of the quota of its tenant; nil if it has none.
func (m *Manager) tenantQuota(space string) func(context.Context) (quota.Report, error) {
	if tenant, _ := m.quotaOf(space); tenant == "" {
		return nil
	}
	var mu sync.Mutex
	var last quota.Report
	var at time.Time
	return func(ctx context.Context) (quota.Report, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) < reportFor {
			return last, nil
		}
		report, err := m.reportQuota(ctx, space)
		if err != nil {
			m.logger.Error(err, "Could not read the quota of a tenant", "space", space) // it names what is the host's
			return report, apierrors.NewServiceUnavailable("the quota of the tenant can't be read now; try again")
		}
		last, at = report, time.Now()
		return report, nil
	}
}

// reportQuota adds up what the spaces of the tenant use, as the watch of their objects says. What the tenants above have and use is not
// for the space to know (H6).
func (m *Manager) reportQuota(ctx context.Context, space string) (report quota.Report, err error) {
	tenant, _ := m.quotaOf(space)
	report = quota.Report{Tenant: tenant, Used: corev1.ResourceList{}}
	if report.Limit, report.SpaceLimit, err = m.shares.Limits(ctx, space); err != nil {
		return report, fmt.Errorf("report the quota of space %s: %w", space, err)
	}
	for _, object := range m.objects.All() {
		if object.Spec.TenantName == tenant {
			report.Used = utilquota.Add(report.Used, object.Status.Quota.Used)
		}
		if object.Name == space {
			report.SpaceUsed = object.Status.Quota.Used
		}
	}
	return report, nil
}
