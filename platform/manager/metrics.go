// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceprocess"
)

// Names are those of all spaces that the platform serves, in no order.
func (m *Manager) Names() []string {
	return slices.AppendSeq(m.shard.Names(), maps.Keys(m.processes.all()))
}

// metricsTimeout bounds what metrics wait for the processes of spaces: less than
// whoever reads them waits.
const metricsTimeout = 2 * time.Second

// Metrics is what is known of the spaces without waking any.
func (m *Manager) Metrics() []metrics.Space {
	counts := m.shard.HostObjects()
	spaces := m.dedicatedMetrics(counts)
	for _, status := range m.shard.List() {
		spaces = append(spaces, spaceprocess.SpaceMetric(m.shard.Space(status.Name), datadir.Space(m.config.DataDir, status.Name), status, counts[status.Name]))
	}
	return spaces
}

// dedicatedMetrics are what the processes say of their spaces. Of one that does
// not answer it is known why.
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

// checkedMetric is what counts of what a process says of its space, which somebody may have taken over: what would be a label is
// what it may be, and there once.
func checkedMetric(said metrics.Space, name string, hostObjects map[string]int) metrics.Space {
	said.Name, said.HostObjects = name, hostObjects
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
