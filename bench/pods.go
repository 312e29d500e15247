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
)

// podTime is how long one pod may take until it is on the host, or runs there.
const podTime = 2 * time.Minute

// newPod is a pod as users have them: with the token of its service account. It says so, because the accounts in spaces' host
// namespaces have no tokens by default.
func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(true),
			Containers:                   []corev1.Container{{Name: "c", Image: "registry.example/image:1"}},
		},
	}
}

// newPod is one that can run where the measured pods are to run.
func (b *bench) newPod(name string) *corev1.Pod {
	pod := newPod(name)
	if b.podImage != "" {
		pod.Spec.Containers[0].Image = b.podImage
	}
	return pod
}

// podsAlive is how many pods of each way stay until they are removed: nodes take 110, and the time to find a node for one should
// not grow in the course of a run.
const podsAlive = 40

// measurePods creates pods one by one, and takes the time until a watch on the host shows each.
func measurePods(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.twoWays(ctx, "bench-pods")
	if err != nil {
		return err
	}
	defer ways.stop()
	toHost, _, err := b.onePodAfterTheOther(ctx, ways, max(1, b.pods/10), false)
	if err != nil {
		return err
	}
	b.addTimes("pod_to_host_ms", toHost, map[string]report.Target{"p50": report.AtMostShare(1.2), "p99": report.AtMostShare(1.2)})
	return nil
}

// onePodAfterTheOther creates pods in turn through a space and directly, so that whatever else the machine does meets both
// alike, and returns the milliseconds until a watch on the host showed each, and until its client saw it running. Only then comes
// the next one if running is wanted. What comes first, to warm up, does not count.
func (b *bench) onePodAfterTheOther(ctx context.Context, ways *twoWays, warmUp int, run bool) (toHost, toRunning pair, err error) {
	sides := []struct {
		way
		client            kubernetes.Interface
		toHost, toRunning *[]float64
		created           []string
	}{
		{way: ways.direct, toHost: &toHost.stock, toRunning: &toRunning.stock},
		{way: ways.through, toHost: &toHost.berth, toRunning: &toRunning.berth},
	}
	for i := range sides {
		client, disconnect, err := sides[i].plane.client()
		if err != nil {
			return toHost, toRunning, err
		}
		defer disconnect()
		sides[i].client = client
	}
	for n := range b.pods + warmUp {
		for i := range sides {
			// Each goes first as often as the other: what one leaves to be done meets the next.
			s := &sides[(i+n)%len(sides)]
			name := fmt.Sprintf("%s-%d", s.prefix, n)
			times, err := b.timePod(ctx, s.way, s.client, name, run)
			if err != nil {
				return toHost, toRunning, err
			}
			s.created = append(s.created, name)
			if n >= warmUp {
				*s.toHost, *s.toRunning = append(*s.toHost, times.toHost), append(*s.toRunning, times.toRunning)
			}
		}
		if (n+1)%podsAlive > 0 && n+1 < b.pods+warmUp {
			continue
		}
		for i := range sides {
			if err := b.remove(ctx, sides[i].way, sides[i].created); err != nil {
				return toHost, toRunning, err
			}
			sides[i].created = nil
		}
	}
	return toHost, toRunning, nil
}

// podTimes are in milliseconds, from asking for a pod.
type podTimes struct{ toHost, toRunning float64 }

// timePod creates a pod, and waits until it is on the host, and, if running is wanted, runs.
func (b *bench) timePod(ctx context.Context, w way, client kubernetes.Interface, name string, run bool) (t podTimes, err error) {
	ctx, cancel := context.WithTimeout(ctx, podTime)
	defer cancel()
	begin := time.Now()
	since := func(at time.Time) float64 { return float64(at.Sub(begin).Microseconds()) / 1000 }
	if _, err := client.CoreV1().Pods(w.namespace).Create(ctx, b.newPod(name), metav1.CreateOptions{}); err != nil {
		return t, fmt.Errorf("create pod %s: %w", name, err)
	}
	at, err := w.host.When(ctx, w.host.Seen, w.hostName(name))
	if err != nil {
		return t, err
	}
	t.toHost = since(at)
	if run {
		if at, err = w.own.When(ctx, w.own.Runs, name); err != nil {
			return t, err
		}
		t.toRunning = since(at)
	}
	return t, nil
}
