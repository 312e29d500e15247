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

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

// burstTime is how long a burst may take until all of it is on the host, or gone from there.
const burstTime = 5 * time.Minute

// burstRepeats is how many bursts are one repeat: each is over in a second, and they differ by half.
const burstRepeats = 4

// measureBurst creates many pods at once by several clients without rate limits, in turn through a space and directly, and
// takes the rate at which they come to be on the host.
func measureBurst(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.twoWays(ctx, "bench-burst")
	if err != nil {
		return err
	}
	return b.measureBursts(ctx, s, ways, "burst_pods_per_s", "", 1, burstRepeats*b.repeats, report.AtLeastShare(0.9))
}

// measureBursts has some bursts first that don't count. With a name for it, it also takes the rate at which the pods come to run.
func (b *bench) measureBursts(ctx context.Context, s *sides, ways *twoWays, name, running string, warmUp, repeats int, target report.Target) error {
	defer ways.stop()
	var ran pair
	side := func(w way, ran *[]float64) func(int) (float64, error) {
		return func(repeat int) (float64, error) {
			if err := s.quiet(ctx, side.Host, side.Berth); err != nil {
				return 0, err
			}
			rate, rateOfRunning, err := b.burstOnce(ctx, w, repeat, running != "")
			*ran = append(*ran, rateOfRunning)
			return rate, err
		}
	}
	for i := range warmUp {
		for _, w := range []way{ways.direct, ways.through} {
			if _, _, err := b.burstOnce(ctx, w, i-warmUp, false); err != nil {
				return err
			}
		}
	}
	p, err := b.inTurn(ctx, name, repeats, ways.through.plane, side(ways.through, &ran.berth), side(ways.direct, &ran.stock))
	if err != nil {
		return err
	}
	b.addTotal(name, "1/s", p, target)
	if running != "" {
		b.addTotal(running, "1/s", ran, report.Target{})
	}
	return nil
}

// burstOnce creates the pods, returns how many a second came to be on the host, and came to run if that is wanted, and removes
// them.
func (b *bench) burstOnce(ctx context.Context, w way, repeat int, run bool) (toHost, toRunning float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, burstTime)
	defer cancel()
	clients, disconnect, err := w.plane.clients(b.bursters)
	if err != nil {
		return 0, 0, err
	}
	defer disconnect()
	for _, client := range clients { // connect before the time runs
		if _, err := client.CoreV1().Namespaces().Get(ctx, w.namespace, metav1.GetOptions{}); err != nil {
			return 0, 0, fmt.Errorf("connect a client to %s: %w", w.plane.name, err)
		}
	}
	names := make([]string, b.burst)
	for i := range names {
		names[i] = fmt.Sprintf("%s-burst-%d-%d", w.prefix, repeat, i)
	}
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	begin := time.Now()
	for c, client := range clients {
		wg.Go(func() {
			for i := c; i < len(names) && errs[c] == nil; i += len(clients) {
				_, errs[c] = client.CoreV1().Pods(w.namespace).Create(ctx, b.newPod(names[i]), metav1.CreateOptions{})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, 0, fmt.Errorf("create a burst of pods in %s: %w", w.plane.name, err)
	}
	if err := w.host.Await(ctx, w.host.Seen, w.onHost(names)...); err != nil {
		return 0, 0, err
	}
	toHost = float64(b.burst) / time.Since(begin).Seconds()
	if run {
		if err := w.own.Await(ctx, w.own.Runs, names...); err != nil {
			return 0, 0, err
		}
		toRunning = float64(b.burst) / time.Since(begin).Seconds()
	}
	return toHost, toRunning, b.remove(ctx, w, names)
}
