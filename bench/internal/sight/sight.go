// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sight notes when watches show objects: that each is there, runs, and is gone. Measures wait for that, and take the times.
package sight

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

// Sight is a watch of pods or other objects, and when it first showed each of them, first showed it running, and showed that it is gone. It goes
// on when the API server ends it: one whose client is slow, as clients are while hundreds of pods start on the same machine.
type Sight struct {
	watch *watchtools.RetryWatcher
	mu    sync.Mutex
	Seen  Moments
	Runs  Moments
	Gone  Moments
	ended sync.WaitGroup
}

// Moments are of objects, by name.
type Moments map[string]*moment

// moment is something that happens once.
type moment struct {
	at   time.Time
	over chan struct{}
}

// Pods watches the pods of a namespace from now on.
func Pods(ctx context.Context, client kubernetes.Interface, namespace string) (*Sight, error) {
	pods := client.CoreV1().Pods(namespace)
	now, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods in %s: %w", namespace, err)
	}
	s, err := New(ctx, now.ResourceVersion, pods.Watch, func(object metav1.Object) bool {
		pod, ok := object.(*corev1.Pod)
		return ok && pod.Status.Phase == corev1.PodRunning
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods in %s: %w", namespace, err)
	}
	return s, nil
}

// New watches objects from a resource version on. runs reports whether one of them runs.
func New(ctx context.Context, from string, watches cache.WatchFuncWithContext, runs func(metav1.Object) bool) (*Sight, error) {
	w, err := watchtools.NewRetryWatcherWithContext(ctx, from, &cache.ListWatch{WatchFuncWithContext: watches})
	if err != nil {
		return nil, err
	}
	s := &Sight{watch: w, Seen: Moments{}, Runs: Moments{}, Gone: Moments{}}
	s.ended.Go(func() {
		for event := range w.ResultChan() {
			object, ok := event.Object.(metav1.Object)
			if !ok {
				continue
			}
			now := time.Now()
			if event.Type == watch.Added {
				s.happened(s.Seen, object.GetName(), now)
			}
			if runs(object) {
				s.happened(s.Runs, object.GetName(), now)
			}
			if event.Type == watch.Deleted {
				s.happened(s.Gone, object.GetName(), now)
			}
		}
	})
	return s, nil
}

// Stop ends the watch, and waits for its end.
func (s *Sight) Stop() {
	s.watch.Stop()
	s.ended.Wait()
}

func (s *Sight) happened(m Moments, name string, at time.Time) {
	of := s.of(m, name)
	if of.at.IsZero() {
		of.at = at
		close(of.over)
	}
}

func (s *Sight) of(m Moments, name string) *moment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m[name] == nil {
		m[name] = &moment{over: make(chan struct{})}
	}
	return m[name]
}

// Await waits until something has happened to objects.
func (s *Sight) Await(ctx context.Context, m Moments, names ...string) error {
	for _, name := range names {
		if _, err := s.When(ctx, m, name); err != nil {
			return err
		}
	}
	return nil
}

// When waits until something has happened to an object, and returns when it did.
func (s *Sight) When(ctx context.Context, m Moments, name string) (time.Time, error) {
	of := s.of(m, name)
	select {
	case <-of.over:
		return of.at, nil
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
	}
}
