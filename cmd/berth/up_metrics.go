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

func (u *up) newMetrics() *metrics.Metrics {
	version := readVersion()
	return metrics.New(metrics.Config{
		Version: version.Berth, Kubernetes: version.Kubernetes,
		Names:  func() []string { return u.shard.Names() },
		Spaces: u.spaceMetrics,
		Certificates: func() map[string]time.Time {
			return map[string]time.Time{"authority": u.ca.NotAfter(), "serving": u.certificate.NotAfter()}
		},
	})
}

// spaceMetrics is what is known of the spaces without waking or waiting for any.
func (u *up) spaceMetrics() []metrics.Space {
	list := u.shard.List()
	counts := u.shard.HostObjects()
	spaces := make([]metrics.Space, 0, len(list))
	for _, status := range list {
		spaces = append(spaces, u.spaceMetric(status, counts[status.Name]))
	}
	return spaces
}

func (u *up) spaceMetric(status shard.Status, hostObjects map[string]int) metrics.Space {
	ready := meta.FindStatusCondition(status.Conditions, shard.ConditionReady)
	m := metrics.Space{
		Name: status.Name, Ready: ready.Status != metav1.ConditionFalse, HostObjects: hostObjects,
		State: map[string]string{
			shard.ReasonAsleep: metrics.Asleep, shard.ReasonStarting: metrics.Starting, shard.ReasonWaking: metrics.Starting,
			shard.ReasonRunning: metrics.Awake, shard.ReasonStopping: metrics.Stopping, shard.ReasonFailed: metrics.Failed,
		}[ready.Reason],
	}
	if running := u.shard.Space(status.Name); running != nil {
		if stats, err := running.StoreStats(context.Background()); err == nil {
			m.Store = &metrics.Store{File: stats.FileBytes, Log: stats.WALBytes, Live: stats.UsedBytes, Limit: stats.MaxBytes, Revision: stats.Revision}
		}
		done := running.SyncStats()
		m.Sync = &metrics.Sync{Done: done.Done, Conflicts: done.Conflicts, Refused: done.Refused, Failed: done.Failed, Queued: done.Queued}
		return m
	}
	if info, err := os.Stat(filepath.Join(u.options.dataDir, "spaces", status.Name, "store.db")); err == nil {
		m.Store = &metrics.Store{File: info.Size()}
	}
	return m
}
