// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// podTime is how long one pod may take until it is on the host.
const podTime = 30 * time.Second

// sight knows when a watch on the host has first shown each pod, and when it has shown that it is gone.
type sight struct {
	watch watch.Interface
	mu    sync.Mutex
	seen  map[string]chan struct{}
	gone  map[string]chan struct{}
	ended sync.WaitGroup
}

func watchPods(ctx context.Context, host kubernetes.Interface, namespace string) (*sight, error) {
	w, err := host.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch the host's pods: %w", err)
	}
	s := &sight{watch: w, seen: map[string]chan struct{}{}, gone: map[string]chan struct{}{}}
	s.ended.Go(func() {
		for event := range w.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			switch {
			case ok && event.Type == watch.Added:
				close(s.of(s.seen, pod.Name))
			case ok && event.Type == watch.Deleted:
				close(s.of(s.gone, pod.Name))
			}
		}
	})
	return s, nil
}

func (s *sight) stop() {
	s.watch.Stop()
	s.ended.Wait()
}

func (s *sight) of(m map[string]chan struct{}, name string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m[name] == nil {
		m[name] = make(chan struct{})
	}
	return m[name]
}

// await waits for pods to be seen, or to be gone.
func (s *sight) await(ctx context.Context, m map[string]chan struct{}, names ...string) error {
	for _, name := range names {
		select {
		case <-s.of(m, name):
		case <-ctx.Done():
			return fmt.Errorf("wait for pod %s on the host: %w", name, context.Cause(ctx))
		}
	}
	return nil
}

// time creates a pod and returns the milliseconds until it is seen on the host under hostName.
func (s *sight) time(ctx context.Context, client kubernetes.Interface, namespace, name, hostName string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, podTime)
	defer cancel()
	begin := time.Now()
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, newPod(name), metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create pod %s: %w", name, err)
	}
	if err := s.await(ctx, s.seen, hostName); err != nil {
		return 0, err
	}
	return float64(time.Since(begin).Microseconds()) / 1000, nil
}
