// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bench/internal/report"
)

// burstTime is how long a burst may take until all of it is on the host, or gone from there.
const burstTime = 2 * time.Minute

// burstRepeats is how many bursts are one repeat: each is over in a second, and they differ by half.
const burstRepeats = 4

// measureBurst creates many pods at once by several clients without rate limits, in turn through a space and directly, and
// takes the rate at which they come to be on the host.
func measureBurst(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.twoWays(ctx, "bench-burst")
	if err != nil {
		return err
	}
	defer ways.stop()
	through := way{ways.space, metav1.NamespaceDefault, "pod", ways.hostName}
	direct := way{ways.direct, ways.named.HostNamespace(), "direct", func(name string) string { return name }}
	side := func(w way) func(int) (float64, error) {
		return func(repeat int) (float64, error) {
			if err := s.quiet(ctx, hostSide, berthSide); err != nil {
				return 0, err
			}
			return b.burstOnce(ctx, w, ways.sight, repeat)
		}
	}
	for _, w := range []way{direct, through} { // neither side's first burst counts
		if _, err := b.burstOnce(ctx, w, ways.sight, -1); err != nil {
			return err
		}
	}
	p, err := b.inTurn(ctx, "burst_pods_per_s", burstRepeats*b.repeats, ways.space, side(through), side(direct))
	if err != nil {
		return err
	}
	b.add("burst_pods_per_s", "1/s", p, report.AtLeastShare(0.8))
	return nil
}

// way is one of the two ways.
type way struct {
	plane     *plane
	namespace string
	prefix    string
	hostName  func(pod string) string
}

// burstOnce creates the pods, returns how many a second came to be on the host, and removes them.
func (b *bench) burstOnce(ctx context.Context, w way, seen *sight, repeat int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, burstTime)
	defer cancel()
	clients, disconnect, err := w.plane.clients(b.bursters)
	if err != nil {
		return 0, err
	}
	defer disconnect()
	for _, client := range clients { // connect before the time runs
		if _, err := client.CoreV1().Namespaces().Get(ctx, w.namespace, metav1.GetOptions{}); err != nil {
			return 0, fmt.Errorf("connect a client to %s: %w", w.plane.name, err)
		}
	}
	names, onHost := make([]string, b.burst), make([]string, b.burst)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d-%d", w.prefix, repeat+1, i)
		onHost[i] = w.hostName(names[i])
	}
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	begin := time.Now()
	for c, client := range clients {
		wg.Go(func() {
			for i := c; i < len(names) && errs[c] == nil; i += len(clients) {
				_, errs[c] = client.CoreV1().Pods(w.namespace).Create(ctx, newPod(names[i]), metav1.CreateOptions{})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("create a burst of pods in %s: %w", w.plane.name, err)
	}
	if err := seen.await(ctx, seen.seen, onHost...); err != nil {
		return 0, err
	}
	rate := float64(b.burst) / time.Since(begin).Seconds()
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	if err := clients[0].CoreV1().Pods(w.namespace).DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
		return 0, fmt.Errorf("remove a burst of pods from %s: %w", w.plane.name, err)
	}
	return rate, seen.await(ctx, seen.gone, onHost...)
}
