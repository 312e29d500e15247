// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/shard"
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
		spaces = append(spaces, spaceMetric(m.shard.Space(status.Name), datadir.Space(m.config.DataDir, status.Name), status, counts[status.Name]))
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
			if err := processes[name].Get(ctx, metricPath, &spaces[i]); err != nil {
				spaces[i] = spaceMetric(nil, datadir.Space(m.config.DataDir, name), processes[name].Status(ctx), hostObjects[name])
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

// metricPath is where a space's own process tells of it.
const metricPath = "/metric"

// spaceMetric is of a space in this process; running is nil if it does not run.
func spaceMetric(running *shard.Space, dir string, status shard.Status, hostObjects map[string]int) metrics.Space {
	ready := ptr.Deref(meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady), metav1.Condition{Status: metav1.ConditionFalse})
	m := metrics.Space{
		Name: status.Name, Ready: ready.Status != metav1.ConditionFalse, HostObjects: hostObjects,
		State: map[string]string{
			shard.ReasonAsleep: metrics.Asleep, shard.ReasonStarting: metrics.Starting, shard.ReasonWaking: metrics.Starting,
			shard.ReasonRunning: metrics.Awake, shard.ReasonStopping: metrics.Stopping, shard.ReasonFailed: metrics.Failed,
			shard.ReasonHostUnreachable: metrics.Awake, shard.ReasonCrashSuspect: metrics.Failed,
		}[ready.Reason],
	}
	if running != nil {
		m.Limits = running.Account().Usage()
		if stats, err := running.StoreStats(context.Background()); err == nil {
			m.Store = &metrics.Store{File: stats.FileBytes, Log: stats.WALBytes, Live: stats.UsedBytes, Limit: stats.MaxBytes, Revision: stats.Revision}
		}
		done := running.SyncStats()
		m.Sync = &metrics.Sync{Done: done.Done, Conflicts: done.Conflicts, Refused: done.Refused, Failed: done.Failed, Queued: done.Queued}
		return m
	}
	if info, err := os.Stat(filepath.Join(dir, "store.db")); err == nil {
		m.Store = &metrics.Store{File: info.Size()}
	}
	return m
}
