// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/shard"
)

// MetricPath is the path of the metrics of a space's own process.
const MetricPath = "/metric"

// SpaceMetric returns the metrics of a space in this process. running is nil if it does not run.
func SpaceMetric(running *shard.Space, dir string, status shard.Status, hostObjects map[string]int) metrics.Space {
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
	for _, name := range []string{"cache.db", "store.db"} { // of a store in a server, if it has a cache, or a file
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			m.Store = &metrics.Store{File: info.Size()}
		}
	}
	return m
}
