// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/translate"
)

const (
	podsTask  = "pods"
	podsSpace = "bench-pods"
	// podTime is how long one pod may take until it is on the host.
	podTime = 30 * time.Second
)

// latencies are the milliseconds from asking for each pod until a watch on the host has shown it.
type latencies struct{ Space, Direct []float64 }

// comparePods adds to r what the way through a space adds to a pod's creation.
func comparePods(ctx context.Context, s settings, r *report.Report) error {
	var l latencies
	if err := inChild(ctx, podsTask, s, &l); err != nil {
		return err
	}
	for _, p := range []float64{50, 99} {
		r.Add(fmt.Sprintf("pod_to_host_ms_p%g", p), "ms", report.Percentile(l.Space, p), report.Percentile(l.Direct, p))
	}
	return nil
}

// measurePods creates pods one by one, in turn through a space and directly on the host, both by TLS, so that whatever else
// the machine does meets both alike.
func measurePods(ctx context.Context, s settings, dir string) (_ *latencies, err error) {
	b, err := startBerth(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), childStopTime)
		defer cancel()
		err = errors.Join(err, b.stop(stopping))
	}()
	plane, err := b.startSpace(ctx, podsSpace)
	if err != nil {
		return nil, err
	}
	space, err := kubernetes.NewForConfig(plane.client)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	host, err := kubernetes.NewForConfig(b.host)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	named := translate.Space{Name: podsSpace}
	sight, err := watchPods(ctx, host, named.HostNamespace())
	if err != nil {
		return nil, err
	}
	defer sight.stop()

	l := &latencies{}
	for i := range s.Pods + s.warmUp() {
		direct, err := sight.time(ctx, host, named.HostNamespace(), fmt.Sprintf("direct-%d", i), fmt.Sprintf("direct-%d", i))
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("pod-%d", i)
		through, err := sight.time(ctx, space, metav1.NamespaceDefault, name, named.HostName(metav1.NamespaceDefault, name, translate.LimitSubdomain))
		if err != nil {
			return nil, err
		}
		if i >= s.warmUp() {
			l.Direct, l.Space = append(l.Direct, direct), append(l.Space, through)
		}
	}
	return l, nil
}

// warmUp is how many pods come before those that count.
func (s settings) warmUp() int { return max(1, s.Pods/10) }

// sight knows when a watch on the host has first shown each pod.
type sight struct {
	watch watch.Interface
	mu    sync.Mutex
	seen  map[string]chan struct{}
	ended sync.WaitGroup
}

func watchPods(ctx context.Context, host kubernetes.Interface, namespace string) (*sight, error) {
	w, err := host.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch the host's pods: %w", err)
	}
	s := &sight{watch: w, seen: map[string]chan struct{}{}}
	s.ended.Go(func() {
		for event := range w.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				close(s.of(pod.Name))
			}
		}
	})
	return s, nil
}

func (s *sight) stop() {
	s.watch.Stop()
	s.ended.Wait()
}

func (s *sight) of(name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[name] == nil {
		s.seen[name] = make(chan struct{})
	}
	return s.seen[name]
}

// time creates a pod and returns the milliseconds until it is seen on the host under hostName.
func (s *sight) time(ctx context.Context, client kubernetes.Interface, namespace, name, hostName string) (float64, error) {
	seen := s.of(hostName)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "registry.example/image:1"}},
		},
	}
	ctx, cancel := context.WithTimeout(ctx, podTime)
	defer cancel()
	begin := time.Now()
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create pod %s: %w", name, err)
	}
	select {
	case <-seen:
		return float64(time.Since(begin).Microseconds()) / 1000, nil
	case <-ctx.Done():
		return 0, fmt.Errorf("pod %s did not come to the host: %w", name, ctx.Err())
	}
}
