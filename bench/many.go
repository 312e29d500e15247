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
// watches on the host have shown all.
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
