// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

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
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/shard"
)

func (p *Platform) newMetrics() *metrics.Metrics {
	return metrics.New(metrics.Config{
		Version: p.config.Version.Berth, Kubernetes: p.config.Version.Kubernetes,
		Names:  p.Names,
		Spaces: p.spaceMetrics,
		Certificates: func() map[string]time.Time {
			return map[string]time.Time{"authority": p.ca.NotAfter(), "serving": p.certificate.NotAfter()}
		},
	})
}

// Names are those of all spaces that the platform serves, in no order.
func (p *Platform) Names() []string {
	return slices.AppendSeq(p.shard.Names(), maps.Keys(p.processes.all()))
}

// metricsTimeout bounds what metrics wait for the processes of spaces: less than
// whoever reads them waits.
const metricsTimeout = 2 * time.Second

// spaceMetrics is what is known of the spaces without waking any.
func (p *Platform) spaceMetrics() []metrics.Space {
	counts := p.shard.HostObjects()
	spaces := p.dedicatedMetrics(counts)
	for _, status := range p.shard.List() {
		spaces = append(spaces, spaceMetric(p.shard.Space(status.Name), p.spaceDir(status.Name), status, counts[status.Name]))
	}
	if p.limiter != nil {
		for _, space := range spaces {
			p.limiter.Count(space.Name, space.Limits)
		}
	}
	return spaces
}

// dedicatedMetrics are what the processes say of their spaces. Of one that does
// not answer it is known why.
func (p *Platform) dedicatedMetrics(hostObjects map[string]map[string]int) []metrics.Space {
	ctx, cancel := context.WithTimeout(context.Background(), metricsTimeout)
	defer cancel()
	processes := p.processes.all()
	names := slices.Sorted(maps.Keys(processes))
	spaces := make([]metrics.Space, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			if err := processes[name].Get(ctx, metricPath, &spaces[i]); err != nil {
				spaces[i] = spaceMetric(nil, p.spaceDir(name), processes[name].Status(ctx), hostObjects[name])
			}
			spaces[i].Name = name
		})
	}
	wg.Wait()
	return spaces
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
