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
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// podTime is how long one pod may take until it is on the host, or runs there.
const podTime = 2 * time.Minute

// sight is a watch of pods or other objects, and when it first showed each of them, first showed it running, and showed that it is gone. It goes
// on when the API server ends it: one whose client is slow, as clients are while hundreds of pods start on the same machine.
type sight struct {
	watch *watchtools.RetryWatcher
	mu    sync.Mutex
	seen  moments
	runs  moments
	gone  moments
	ended sync.WaitGroup
}

// moments are of objects, by name.
type moments map[string]*moment

// moment is something that happens once.
type moment struct {
	at   time.Time
	over chan struct{}
}

func watchPods(ctx context.Context, client kubernetes.Interface, namespace string) (*sight, error) {
	pods := client.CoreV1().Pods(namespace)
	now, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", namespace, err)
	}
	s, err := newSight(ctx, now.ResourceVersion, pods.Watch, func(object metav1.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && pod.Status.Phase == corev1.PodRunning
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods in %s: %w", namespace, err)
	}
	return s, nil
}

// newSight watches objects from a resource version on. runs reports whether one of them runs.
func newSight(ctx context.Context, from string, watches cache.WatchFuncWithContext, runs func(metav1.Object) bool) (*sight, error) {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: watches})
	if err != nil {
		return nil, err
	}
	s := &sight{watch: w, seen: moments{}, runs: moments{}, gone: moments{}}
	s.ended.Go(func() {
		for event := range w.ResultChan() {
			object, ok := event.Object.(metav1.Object)
			if !ok {
				continue
			}
			now := time.Now()
			if event.Type == watch.Added {
				s.happened(s.seen, object.GetName(), now)
			}
			if runs(object) {
				s.happened(s.runs, object.GetName(), now)
			}
			if event.Type == watch.Deleted {
				s.happened(s.gone, object.GetName(), now)
			}
		}
	})
	return s, nil
}

func (s *sight) stop() {
	s.watch.Stop()
	s.ended.Wait()
}

func (s *sight) happened(m moments, name string, at time.Time) {
	of := s.of(m, name)
	if of.at.IsZero() {
		of.at = at
		close(of.over)
	}
}

func (s *sight) of(m moments, name string) *moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m[name] == nil {
		m[name] = &moment{over: make(chan struct{})}
	}
	return m[name]
}

// await waits until something has happened to objects.
func (s *sight) await(ctx context.Context, m moments, names ...string) error {
	for _, name := range names {
		if _, err := s.when(ctx, m, name); err != nil {
			return err
		}
	}
	return nil
}

// when waits until something has happened to an object, and returns when it did.
func (s *sight) when(ctx context.Context, m moments, name string) (time.Time, error) {
	of := s.of(m, name)
	select {
	case <-of.over:
		return of.at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
	}
}
