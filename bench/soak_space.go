// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// soakPods are the pods of a space: one of a deployment, one by itself.
	soakPods = 2
	// runTime is how long pods may take to run, or to be gone.
	runTime = 2 * time.Minute
	runPoll = 100 * time.Millisecond
)

// soakSpace is one of the spaces that come and go.
type soakSpace struct {
	child *child
	name  string
	plane *plane
}

// do takes steps until one fails.
func (s *soakSpace) do(ctx context.Context, steps []func(*soakSpace, context.Context) error) error {
	for _, step := range steps {
		if err := step(s, ctx); err != nil {
			return fmt.Errorf("space %s: %w", s.name, err)
		}
	}
	return nil
}

// create creates the space and waits until its pods run on the host.
func (s *soakSpace) create(ctx context.Context) (err error) {
	if s.plane, _, err = s.child.start(ctx, s.name); err != nil {
		return err
	}
	return s.withClient(func(client kubernetes.Interface) error {
		labels := map[string]string{"app": "web"}
		web := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](1),
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPod("").Spec},
			},
		}
		_, err := client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, web, metav1.CreateOptions{})
		_, err2 := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, newPod("one"), metav1.CreateOptions{})
		if err := errors.Join(err, err2); err != nil {
			return fmt.Errorf("create pods: %w", err)
		}
		return running(ctx, client, soakPods)
	})
}

// use wakes the space by a request, finds its pods, and has one more come and go.
func (s *soakSpace) use(ctx context.Context) error {
	return s.withClient(func(client kubernetes.Interface) error {
		if err := running(ctx, client, soakPods); err != nil {
			return err
		}
		pods := client.CoreV1().Pods(metav1.NamespaceDefault)
		if _, err := pods.Create(ctx, newPod("extra"), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a pod: %w", err)
		}
		if err := running(ctx, client, soakPods+1); err != nil {
			return err
		}
		if err := pods.Delete(ctx, "extra", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			return fmt.Errorf("delete a pod: %w", err)
		}
		return running(ctx, client, soakPods)
	})
}

// sleep puts the space to sleep.
func (s *soakSpace) sleep(ctx context.Context) error { return s.plane.sleep(ctx) }

// remove deletes the space with all it has on the host.
func (s *soakSpace) remove(ctx context.Context) error {
	return s.child.call(ctx, "Remove", s.name, new(struct{}))
}

// withClient has f use the space by a connection that doesn't outlive it.
func (s *soakSpace) withClient(f func(kubernetes.Interface) error) error {
	client, disconnect, err := s.plane.client()
	if err != nil {
		return err
	}
	defer disconnect()
	return f(client)
}

// running waits until a space has n pods and the host says of all of them that they run.
func running(ctx context.Context, client kubernetes.Interface, n int) error {
	var have []string
	err := wait.PollUntilContextTimeout(ctx, runPoll, runTime, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		have = nil
		run := 0
		for _, pod := range list.Items {
			have = append(have, pod.Name+" "+string(pod.Status.Phase))
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				run++
			}
		}
		return run == n && len(have) == n, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %d running pods, have %v: %w", n, have, err)
	}
	return nil
}
