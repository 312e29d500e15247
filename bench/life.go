// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// restarts is how often the platform is started again.
	restarts = 3
	// deletedPods is how many pods each space, or namespace, that is deleted has.
	deletedPods = 3
)

// measureLife measures what an admin waits for who creates, restarts, and deletes: all of `berth up`, on a host in another process.
func measureLife(ctx context.Context, b *bench, s *sides) error {
	s.idleAfter = sleepAgain
	platform, err := s.get(ctx, side.Platform)
	if err != nil {
		return err
	}
	host, err := s.hostPlane()
	if err != nil {
		return err
	}
	deletions, err := b.inTurn(ctx, "delete_space_s", b.repeats, &plane{child: platform}, func(repeat int) (float64, error) {
		return deleteOnSpace(ctx, platform, fmt.Sprint("deleted-", repeat))
	}, func(repeat int) (float64, error) {
		return deleteOnHost(ctx, host, fmt.Sprint("deleted-directly-", repeat))
	})
	if err != nil {
		return err
	}
	b.add("delete_space_s", "s", deletions, report.Target{})
	b.report.Note("delete_space_s: a space with %d pods, until nothing is left of it; stock's is a namespace of the host with as many", deletedPods)

	for first := 0; first < b.restartSpaces; first += sayEvery {
		b.say("creating spaces %d to %d", first, min(first+sayEvery, b.restartSpaces))
		var group errgroup.Group
		group.SetLimit(workers)
		for i := first; i < min(first+sayEvery, b.restartSpaces); i++ {
			group.Go(func() error { return platform.call(ctx, "Start", fmt.Sprint("restarted-", i), new([]byte)) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	var seconds []float64
	for range restarts {
		var took time.Duration
		if err := platform.call(ctx, "Restart", struct{}{}, &took); err != nil {
			return err
		}
		seconds = append(seconds, took.Seconds())
	}
	stock, err := b.stockStarts(ctx, s)
	if err != nil {
		return err
	}
	b.report.Add("restart_ready_s", "s", slices.Max(seconds), report.Percentile(stock, 50), report.AtMost(5))
	b.report.Note("restart_ready_s: the slowest of %d restarts with %d spaces, all of which are woken once afterwards; stock's is one API server", restarts, b.restartSpaces)
	return nil
}

// deleteOnSpace creates a space with pods, and returns how long it takes to delete it, until nothing is left.
func deleteOnSpace(ctx context.Context, platform *child, name string) (float64, error) {
	space, _, err := platform.start(ctx, name)
	if err != nil {
		return 0, err
	}
	client, disconnect, err := space.client()
	if err != nil {
		return 0, err
	}
	defer disconnect()
	if err := runPods(ctx, client, corev1.NamespaceDefault); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := platform.call(ctx, "Stop", name, new(struct{})); err != nil {
		return 0, err
	}
	return time.Since(begin).Seconds(), nil
}

// deleteOnHost does the same with a namespace of the host.
func deleteOnHost(ctx context.Context, host *plane, name string) (float64, error) {
	client, disconnect, err := host.client()
	if err != nil {
		return 0, err
	}
	defer disconnect()
	namespaces := client.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create namespace %s: %w", name, err)
	}
	if err := runPods(ctx, client, name); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := namespaces.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return 0, fmt.Errorf("delete namespace %s: %w", name, err)
	}
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, side.RemoveTime, true, func(ctx context.Context) (bool, error) {
		_, err := namespaces.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	return time.Since(begin).Seconds(), err
}

// runPods creates pods, and waits until they run.
func runPods(ctx context.Context, client kubernetes.Interface, namespace string) error {
	for i := range deletedPods {
		err := wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Pods(namespace).Create(ctx, newPod(fmt.Sprint("p", i)), metav1.CreateOptions{})
			return err == nil, nil // its service account may not be there yet
		})
		if err != nil {
			return fmt.Errorf("create pods in %s: %w", namespace, err)
		}
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=" + string(corev1.PodRunning)})
		if err != nil {
			return false, fmt.Errorf("list pods in %s: %w", namespace, err)
		}
		return len(pods.Items) == deletedPods, nil
	})
}
