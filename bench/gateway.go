// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

// warmRequests are the first ones of each way, which do not count.
const warmRequests = 200

// measureGateway takes the latency of requests of a tenant's user through the gateway, which proves who the user is, limits, and meters
// the requests, and of the same requests to the handler of the space.
func measureGateway(ctx context.Context, b *bench, s *sides) error {
	platform, err := s.platform(ctx)
	if err != nil {
		return err
	}
	tenant := side.TenantName(0)
	through, _, err := platform.start(ctx, tenant)
	if err != nil {
		return err
	}
	var kubeconfig []byte
	if err := platform.call(ctx, "Bare", tenant, &kubeconfig); err != nil {
		return err
	}
	bare, err := newPlane(platform, tenant+" without the gateway", kubeconfig)
	if err != nil {
		return err
	}
	if err := s.quiet(ctx, side.Platform, side.Operator, side.Host); err != nil {
		return err
	}
	var times [2][]float64 // in milliseconds
	var clients [2]kubernetes.Interface
	for way, plane := range []*plane{bare, through} {
		client, disconnect, err := plane.client()
		if err != nil {
			return err
		}
		defer disconnect()
		clients[way] = client
	}
	ask := func(requests int) error {
		for i := range requests {
			for turn := range clients {
				way := (turn + i/smallRequests) % len(clients) // each goes first as often as the other
				begin := time.Now()
				if err := smallRequest(ctx, clients[way], fmt.Sprint("small-", way), i); err != nil {
					return fmt.Errorf("request %d to %s: %w", i, tenant, err)
				}
				if i >= warmRequests {
					times[way] = append(times[way], float64(time.Since(begin).Microseconds())/1000)
				}
			}
		}
		return nil
	}
	if err := ask(warmRequests + rounded(b.requests)); err != nil {
		return err
	}
	for _, percentile := range []struct {
		name   string
		of     float64
		target float64
	}{{"gateway_p50", 50, 1.10}, {"gateway_p99", 99, 1.25}} {
		with, without := report.Percentile(times[1], percentile.of), report.Percentile(times[0], percentile.of)
		b.report.Add(percentile.name+"_ratio", "times", with/without, 1, report.AtMost(percentile.target))
		b.report.Add(percentile.name+"_ms", "ms", with, without, report.Target{})
	}
	b.report.Note("gateway_…: %d requests one after the other through the gateway (berth), in turn with as many to the handler of the space (stock)", b.requests)
	if b.profiles == "" {
		return nil
	}
	return b.profileOnce(ctx, "gateway", platform, 0, func(int) (float64, error) { return 0, ask(rounded(b.requests)) })
}

// smallRequests is how many requests leave a space as they found it.
const smallRequests = 4

// rounded returns a number of requests after which a space is as before: n, or a few more.
func rounded(n int) int { return (n + smallRequests - 1) / smallRequests * smallRequests }

// smallRequest creates, gets, lists, or deletes a ConfigMap, in turn.
func smallRequest(ctx context.Context, client kubernetes.Interface, name string, i int) (err error) {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	switch i % smallRequests {
	case 0:
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	case 1:
		_, err = maps.Get(ctx, name, metav1.GetOptions{})
	case 2:
		_, err = maps.List(ctx, metav1.ListOptions{})
	default:
		err = maps.Delete(ctx, name, metav1.DeleteOptions{})
	}
	return err
}
