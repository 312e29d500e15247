// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/shard"
)

func (p *platform) newMetrics() *metrics.Metrics {
	version := readVersion()
	return metrics.New(metrics.Config{
		Version: version.Berth, Kubernetes: version.Kubernetes,
		Names:  func() []string { return p.shard.Names() },
		Spaces: p.spaceMetrics,
		Certificates: func() map[string]time.Time {
			return map[string]time.Time{"authority": p.ca.NotAfter(), "serving": p.certificate.NotAfter()}
		},
	})
}

// spaceMetrics is what is known of the spaces without waking or waiting for any.
func (p *platform) spaceMetrics() []metrics.Space {
	list := p.shard.List()
	counts := p.shard.HostObjects()
	spaces := make([]metrics.Space, 0, len(list))
	for _, status := range list {
		spaces = append(spaces, p.spaceMetric(status, counts[status.Name]))
	}
	return spaces
}

func (p *platform) spaceMetric(status shard.Status, hostObjects map[string]int) metrics.Space {
	ready := meta.FindStatusCondition(status.Conditions, shard.ConditionReady)
	m := metrics.Space{
		Name: status.Name, Ready: ready.Status != metav1.ConditionFalse, HostObjects: hostObjects,
		State: map[string]string{
			shard.ReasonAsleep: metrics.Asleep, shard.ReasonStarting: metrics.Starting, shard.ReasonWaking: metrics.Starting,
			shard.ReasonRunning: metrics.Awake, shard.ReasonStopping: metrics.Stopping, shard.ReasonFailed: metrics.Failed,
		}[ready.Reason],
	}
	if running := p.shard.Space(status.Name); running != nil {
		if stats, err := running.StoreStats(context.Background()); err == nil {
			m.Store = &metrics.Store{File: stats.FileBytes, Log: stats.WALBytes, Live: stats.UsedBytes, Limit: stats.MaxBytes, Revision: stats.Revision}
		}
		done := running.SyncStats()
		m.Sync = &metrics.Sync{Done: done.Done, Conflicts: done.Conflicts, Refused: done.Refused, Failed: done.Failed, Queued: done.Queued}
		return m
	}
	if info, err := os.Stat(filepath.Join(p.options.dataDir, "spaces", status.Name, "store.db")); err == nil {
		m.Store = &metrics.Store{File: info.Size()}
	}
	return m
}
