// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/metering"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceprocess"
)

// Names returns the names of all spaces that the platform serves, in no order.
func (m *Manager) Names() []string {
	return slices.AppendSeq(m.shard.Names(), maps.Keys(m.processes.all()))
}

// metricsTimeout limits how long metrics wait for the processes of spaces. It is less than the timeout of common
// scrapers.
const metricsTimeout = 2 * time.Second

// Metrics returns the metrics of all spaces, without waking any.
func (m *Manager) Metrics() []metrics.Space {
	counts := m.shard.HostObjects()
	spaces := m.dedicatedMetrics(counts)
	for _, status := range m.shard.List() {
		one := spaceprocess.SpaceMetric(m.shard.Space(status.Name), datadir.Space(m.config.DataDir, status.Name), status, counts[status.Name])
		if use := m.quotas.seen(status.Name); use != nil {
			one.QuotaDrift = m.shares.Drift(status.Name, use.Used)
		}
		spaces = append(spaces, one)
	}
	for i := range spaces {
		spaces[i].ReplicationLag = m.replicationLag(spaces[i].Name)
	}
	return spaces
}

// replicationLag returns for how many seconds a write to the store of a space has not been in its replica; nil if it has none.
func (m *Manager) replicationLag(space string) *float64 {
	if m.replicator == nil {
		return nil
	}
	lag, replicated := m.replicator.Lag(space)
	if !replicated {
		return nil
	}
	return ptr.To(lag.Seconds())
}

// dedicatedMetrics returns the metrics that processes report about their spaces. For a process that does not respond,
// the reason is known.
func (m *Manager) dedicatedMetrics(hostObjects map[string]map[string]int) []metrics.Space {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	processes := m.processes.all()
	names := slices.Sorted(maps.Keys(processes))
	spaces := make([]metrics.Space, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if err := processes[name].Get(ctx, spaceprocess.MetricPath, &spaces[i]); err != nil {
				spaces[i] = spaceprocess.SpaceMetric(nil, datadir.Space(m.config.DataDir, name), processes[name].Status(ctx), hostObjects[name])
			}
			spaces[i] = checkedMetric(spaces[i], name, hostObjects[name])
		})
	}
	wg.Wait()
	return spaces
}

// checkedMetric returns the valid part of the metrics that a process reports about its space. The process may have been
// taken over, so labels are limited to known values, each once.
func checkedMetric(said metrics.Space, name string, hostObjects map[string]int) metrics.Space {
	said.Name, said.HostObjects, said.QuotaDrift, said.ReplicationLag = name, hostObjects, nil, nil
	said.Tenant, said.Use = "", nil
	if !slices.Contains([]string{metrics.Asleep, metrics.Starting, metrics.Awake, metrics.Stopping, metrics.Failed}, said.State) {
		said.State, said.Ready = metrics.Failed, false
	}
	left := map[bounds.Quantity]bool{}
	for q, bound := range bounds.Table() {
		left[bounds.Quantity(q)] = bound.Scope == bounds.PerSpace
	}
	said.Limits = slices.DeleteFunc(said.Limits, func(u bounds.Usage) bool {
		wanted := left[u.Quantity]
		delete(left, u.Quantity)
		return !wanted
	})
	return said
}

// Samples returns what all spaces use now, awake or not. What they use of the host is in the status of their objects, which follows the
// host's quotas.
func (m *Manager) Samples() (samples []metering.Sample) {
	known := map[string]metrics.Space{}
	for _, space := range m.Metrics() {
		known[space.Name] = space
	}
	for _, object := range m.objects.All() {
		if space, served := known[object.Name]; served {
			samples = append(samples, sampleOf(object, space))
		}
	}
	return samples
}

func sampleOf(object *v1alpha1.Space, space metrics.Space) metering.Sample {
	used := func(name corev1.ResourceName) float64 {
		amount := object.Status.Quota.Used[name]
		return amount.AsApproximateFloat64()
	}
	sample := metering.Sample{
		Tenant: object.Spec.TenantName, Space: object.Name, CPU: used(corev1.ResourceRequestsCPU), Memory: used(corev1.ResourceRequestsMemory),
		Storage: used(corev1.ResourceRequestsStorage), Pods: used(corev1.ResourcePods),
	}
	if space.Store != nil {
		sample.Store = float64(space.Store.File)
	}
	for _, limit := range space.Limits {
		if limit.Quantity == bounds.Objects {
			objects := float64(limit.Used)
			sample.Objects = &objects
		}
	}
	return sample
}
