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
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/translate"
)

// twoWays are the two ways that a pod comes to the host: through a space, and directly into the space's host namespace, where
// the same quota counts it.
type twoWays struct {
	space, direct *plane
	named         translate.Space
	sight         *sight
	disconnect    func() // the sight
}

func (s *sides) twoWays(ctx context.Context, name string) (*twoWays, error) {
	berth, err := s.get(ctx, berthSide)
	if err != nil {
		return nil, err
	}
	w := &twoWays{named: translate.Space{Name: name}}
	if w.space, _, err = berth.start(ctx, name); err != nil {
		return nil, err
	}
	if w.direct, err = s.hostPlane(); err != nil {
		return nil, err
	}
	client, disconnect, err := w.direct.client()
	if err != nil {
		return nil, err
	}
	if err := w.allowAccount(ctx, client); err != nil {
		return nil, err
	}
	if w.sight, err = watchPods(ctx, client, w.named.HostNamespace()); err != nil {
		return nil, err
	}
	w.disconnect = disconnect
	return w, nil
}

// allowAccount waits until the host's controller has made the service account that a directly created pod needs.
func (w *twoWays) allowAccount(ctx context.Context, host kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, podTime)
	defer cancel()
	for {
		_, err := host.CoreV1().ServiceAccounts(w.named.HostNamespace()).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			return nil
		}
		select {
		case <-time.After(readyPoll):
		case <-ctx.Done():
			return fmt.Errorf("wait for the service account of direct pods: %w", err)
		}
	}
}

func (w *twoWays) stop() {
	w.sight.stop()
	w.disconnect()
}

func (w *twoWays) hostName(pod string) string {
	return w.named.HostName(metav1.NamespaceDefault, pod, translate.LimitSubdomain)
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "registry.example/image:1"}},
		},
	}
}

// measurePods creates pods one by one, in turn through a space and directly, so that whatever else the machine does meets both
// alike, and takes the time until a watch on the host has shown each.
func measurePods(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.twoWays(ctx, "bench-pods")
	if err != nil {
		return err
	}
	defer ways.stop()
	space, leaveSpace, err := ways.space.client()
	if err != nil {
		return err
	}
	defer leaveSpace()
	direct, leaveHost, err := ways.direct.client()
	if err != nil {
		return err
	}
	defer leaveHost()

	var p pair
	warmUp := max(1, b.pods/10)
	for i := range b.pods + warmUp {
		name := fmt.Sprintf("direct-%d", i)
		stock, err := ways.sight.time(ctx, direct, ways.named.HostNamespace(), name, name)
		if err != nil {
			return err
		}
		name = fmt.Sprintf("pod-%d", i)
		through, err := ways.sight.time(ctx, space, metav1.NamespaceDefault, name, ways.hostName(name))
		if err != nil {
			return err
		}
		if i >= warmUp {
			p.stock, p.berth = append(p.stock, stock), append(p.berth, through)
		}
	}
	b.report.Add("pod_to_host_ms_p50", "ms", report.Percentile(p.berth, 50), report.Percentile(p.stock, 50), report.AtMostMore(3))
	b.report.Add("pod_to_host_ms_p99", "ms", report.Percentile(p.berth, 99), report.Percentile(p.stock, 99), report.AtMostMore(10))
	return nil
}
