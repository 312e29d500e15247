// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/bench/internal/sight"
	"github.com/berth-dev/berth/translate"
)

// way is one of the two ways that a pod gets to the host: through a space, or directly into the space's host namespace.
type way struct {
	plane     *plane
	namespace string
	prefix    string // of the pods' names
	hostName  func(pod string) string
	own       *sight.Sight // of the pods where their clients create them
	host      *sight.Sight // of the pods on the host
}

// twoWays are both ways into one host namespace, where the same quota and the same policies hold.
type twoWays struct {
	through, direct way
	stops           []func()
}

// twoWays starts a space, and the host if there is none yet. With -space it starts nothing.
func (s *sides) twoWays(ctx context.Context, name string) (*twoWays, error) {
	if s.bench.space != "" {
		return s.bench.reachCluster(ctx)
	}
	berth, err := s.get(ctx, side.Berth)
	if err != nil {
		return nil, err
	}
	space, _, err := berth.start(ctx, name)
	if err != nil {
		return nil, err
	}
	host, err := s.hostPlane()
	if err != nil {
		return nil, err
	}
	return newTwoWays(ctx, name, space, host)
}

// newTwoWays watches the pods of a space that is there, on its host and in itself.
func newTwoWays(ctx context.Context, name string, space, host *plane) (_ *twoWays, err error) {
	named := translate.Space{Name: name}
	w := &twoWays{
		through: way{plane: space, namespace: metav1.NamespaceDefault, prefix: "pod", hostName: func(pod string) string {
			return named.HostName(metav1.NamespaceDefault, pod, translate.LimitSubdomain)
		}},
		direct: way{plane: host, namespace: named.HostNamespace(), prefix: "direct", hostName: func(pod string) string { return pod }},
	}
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	for _, way := range []*way{&w.direct, &w.through} {
		client, disconnect, err := way.plane.client()
		if err != nil {
			return nil, err
		}
		w.stops = append(w.stops, disconnect)
		if err := awaitAccount(ctx, client, way.namespace); err != nil {
			return nil, err
		}
		if way.own, err = sight.Pods(ctx, client, way.namespace); err != nil {
			return nil, err
		}
		w.stops = append(w.stops, way.own.Stop)
	}
	w.direct.host, w.through.host = w.direct.own, w.direct.own
	return w, nil
}

// quotaWays are two ways through a space: one of a tenant, whose quota is in a ledger, and one without a tenant, in the place of the
// direct way.
func (s *sides) quotaWays(ctx context.Context, name string) (*twoWays, error) {
	with, err := s.twoWays(ctx, side.TenantPrefix+name)
	if err != nil {
		return nil, err
	}
	without, err := s.twoWays(ctx, name)
	if err != nil {
		with.stop()
		return nil, err
	}
	return &twoWays{through: with.through, direct: without.through, stops: append(with.stops, without.stops...)}, nil
}

// awaitAccount waits until a controller has made the service account that pods need.
func awaitAccount(ctx context.Context, client kubernetes.Interface, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, podTime)
	defer cancel()
	for {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return fmt.Errorf("wait for the default service account of %s: %w", namespace, err)
		}
	}
}

func (w *twoWays) stop() {
	for i := len(w.stops) - 1; i >= 0; i-- {
		w.stops[i]()
	}
}

// remove deletes all pods of a way, and waits until those of names are gone from the host.
func (b *bench) remove(ctx context.Context, w way, names []string) error {
	client, disconnect, err := w.plane.client()
	if err != nil {
		return err
	}
	defer disconnect()
	if err := client.CoreV1().Pods(w.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &b.grace}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("remove the pods from %s: %w", w.plane.name, err)
	}
	return errors.Join(w.host.Await(ctx, w.host.Gone, w.onHost(names)...), w.own.Await(ctx, w.own.Gone, names...))
}

// onHost are the names of pods on the host.
func (w way) onHost(names []string) []string {
	on := make([]string, len(names))
	for i, name := range names {
		on[i] = w.hostName(name)
	}
	return on
}

// addTimes adds percentiles of times in milliseconds. A target of no percentile is not asked for.
func (b *bench) addTimes(name string, p pair, targets map[string]report.Target) {
	for _, of := range []struct {
		suffix  string
		percent float64
	}{{"p50", 50}, {"p90", 90}, {"p99", 99}, {"worst", 100}} {
		b.report.Add(name+"_"+of.suffix, "ms", report.Percentile(p.berth, of.percent), report.Percentile(p.stock, of.percent), targets[of.suffix])
	}
}
