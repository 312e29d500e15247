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
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/bench/internal/sight"
	"github.com/berth-dev/berth/translate"
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

const (
	// manyRounds is in how many parts the pods come, in turn through spaces and directly.
	manyRounds = 10
	// manyTime is how long a part may take.
	manyTime = 10 * time.Minute
)

// manyWay is where the pods of one way come from: a client for each namespace, all of them used by a few goroutines.
type manyWay struct {
	clients  []kubernetes.Interface // of each space
	in       func(space string) string
	prefix   string
	hostName func(space, pod string) string
	seconds  float64
}

// measureMany creates many pods in many spaces, and as many directly in the spaces' host namespaces, and takes the time until
// watches on the host have reported all.
func measureMany(ctx context.Context, b *bench, s *sides) error {
	berth, err := s.get(ctx, side.Berth)
	if err != nil {
		return err
	}
	host, err := s.hostPlane()
	if err != nil {
		return err
	}
	direct := manyWay{
		in: func(space string) string { return translate.Space{Name: space}.HostNamespace() }, prefix: "direct",
		hostName: func(_, pod string) string { return pod },
	}
	through := manyWay{
		in: func(string) string { return metav1.NamespaceDefault }, prefix: "pod",
		hostName: func(space, pod string) string {
			return translate.Space{Name: space}.HostName(metav1.NamespaceDefault, pod, translate.LimitSubdomain)
		},
	}
	spaces := make([]string, b.manySpaces)
	for i := range spaces {
		spaces[i] = fmt.Sprintf("many-%d", i)
		space, _, err := berth.start(ctx, spaces[i])
		if err != nil {
			return err
		}
		for _, of := range []struct {
			plane *plane
			way   *manyWay
		}{{space, &through}, {host, &direct}} {
			client, disconnect, err := of.plane.client()
			if err != nil {
				return err
			}
			defer disconnect()
			if err := awaitAccount(ctx, client, of.way.in(spaces[i])); err != nil {
				return err
			}
			of.way.clients = append(of.way.clients, client)
		}
	}
	onHost, err := sight.Pods(ctx, direct.clients[0], metav1.NamespaceAll)
	if err != nil {
		return err
	}
	defer onHost.Stop()
	ways := []*manyWay{&direct, &through}
	for round := range manyRounds {
		for i := range ways {
			way := ways[(i+round)%len(ways)] // what one leaves to be done meets the next
			seconds, err := b.manyOnce(ctx, way, spaces, onHost, round)
			if err != nil {
				return err
			}
			way.seconds += seconds
			b.say("pods_10000_s: %s %.3g s", way.prefix, seconds)
		}
	}
	b.report.Add("pods_10000_s", "s", through.seconds, direct.seconds, report.AtMostShare(1.05))
	b.report.Note("pods_10000_s: %d pods in %d spaces", b.many/manyRounds*manyRounds, b.manySpaces)
	return nil
}

// manyOnce creates a part of the pods, and returns the seconds until all are on the host.
func (b *bench) manyOnce(ctx context.Context, w *manyWay, spaces []string, onHost *sight.Sight, round int) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, manyTime)
	defer cancel()
	n := b.many / manyRounds
	names := make([]string, n)
	errs := make([]error, b.bursters)
	var wg sync.WaitGroup
	begin := time.Now()
	for c := range errs {
		wg.Go(func() {
			for i := c; i < n && errs[c] == nil; i += len(errs) {
				at := i % len(spaces)
				pod := fmt.Sprintf("%s-%d-%d", w.prefix, round, i)
				names[i] = w.hostName(spaces[at], pod)
				_, errs[c] = w.clients[at].CoreV1().Pods(w.in(spaces[at])).Create(ctx, newPod(pod), metav1.CreateOptions{})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return 0, fmt.Errorf("create many pods: %w", err)
	}
	err := onHost.Await(ctx, onHost.Seen, names...)
	return time.Since(begin).Seconds(), err
}
