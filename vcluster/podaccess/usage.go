// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Usage tells what pods use where they run (S5).
type Usage interface {
	// PodMetrics of those of pods, which are all of one namespace or of all, of
	// which it is known. Errors are for clients to see.
	PodMetrics(ctx context.Context, pods []*corev1.Pod) ([]metricsv1beta1.PodMetrics, error)
}

// Metrics is a space's [builtin.Usage].
type Metrics struct {
	Usage Usage
	Pods  corelisters.PodLister
}

// PodMetrics returns what the containers of these pods use.
func (u Metrics) PodMetrics(ctx context.Context, namespace string, label labels.Selector, field fields.Selector) ([]metricsv1beta1.PodMetrics, error) {
	all, err := u.Pods.Pods(namespace).List(label)
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for _, pod := range all {
		if field.Matches(fields.Set{metav1.ObjectNameField: pod.Name, "metadata.namespace": pod.Namespace}) {
			pods = append(pods, pod)
		}
	}
	return u.Usage.PodMetrics(ctx, pods)
}
