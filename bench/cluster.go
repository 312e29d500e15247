// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/berth-dev/berth/bench/internal/report"
)

// clusterGroups are measured with -space: on a real cluster, whose nodes run the pods, through a Berth that is installed there.
func clusterGroups() []group {
	return []group{
		{"pods", []string{"kind_pod_to_host_ms", "kind_pod_to_running_ms"}, measureClusterPods},
		{"burst", []string{"kind_burst_pods_per_s", "kind_burst_running_per_s"}, measureClusterBurst},
	}
}

// warmUpOnCluster is how many pods of each way come first there: nodes have the image then, and connections are open.
const warmUpOnCluster = 5

func measureClusterPods(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.twoWays(ctx, b.space)
	if err != nil {
		return err
	}
	defer ways.stop()
	toHost, toRunning, err := b.onePodAfterTheOther(ctx, ways, warmUpOnCluster, true)
	if err != nil {
		return err
	}
	b.addTimes("kind_pod_to_host_ms", toHost, map[string]report.Target{"p50": report.AtMostShare(2.5), "p99": report.AtMostShare(5)})
	b.addTimes("kind_pod_to_running_ms", toRunning, map[string]report.Target{"p50": report.AtMostShare(1.2)})
	b.report.Note("kind_pod_to_…: %d pods each way, one after the other", b.pods)
	return nil
}

func measureClusterBurst(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.twoWays(ctx, "bench-burst")
	if err != nil {
		return err
	}
	return b.measureBursts(ctx, s, ways, "kind_burst_pods_per_s", "kind_burst_running_per_s", 0, b.repeats, report.AtLeastShare(0.9))
}

// reachCluster makes the two ways into a space that runs already.
func (b *bench) reachCluster(ctx context.Context) (*twoWays, error) {
	planes := make([]*plane, 2)
	for i, file := range []string{b.spaceAt, b.host} {
		kubeconfig, err := os.ReadFile(file)
		if err == nil {
			planes[i], err = newPlane(nil, file, kubeconfig)
		}
		if err != nil {
			return nil, fmt.Errorf("reach the cluster and its space %s: %w", b.space, err)
		}
	}
	return newTwoWays(ctx, b.space, planes[0], planes[1])
}

// checkCluster says what -space lacks.
func (s *settings) checkCluster() error {
	switch {
	case s.space == "":
		return nil
	case s.host == "" || s.spaceAt == "" || s.podImage == "":
		return errors.New("-space wants -space-kubeconfig, -host-kubeconfig and -pod-image as well")
	case s.profiles != "" || s.soak || s.apart:
		return errors.New("-space is of another process: -profiles, -soak and -apart are not for it")
	}
	return nil
}
