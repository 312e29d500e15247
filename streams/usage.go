// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"context"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// usageTimeout bounds the question whether the host measures: a space must not
// start late for an answer that does not come.
const usageTimeout = time.Second

// HasUsage tells whether the host has an API that says what pods use. One that
// has it and does not answer now has it.
func (s *Streams) HasUsage(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, usageTimeout)
	defer cancel()
	at := s.base.JoinPath("apis", metricsv1beta1.SchemeGroupVersion.Group, metricsv1beta1.SchemeGroupVersion.Version)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return false
	}
	resp, err := s.transport.RoundTrip(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode != http.StatusNotFound
}

// PodMetrics of those of pods of which the host knows it, in the pods' own names
// and with their own containers only.
func (s *Streams) PodMetrics(ctx context.Context, pods []*corev1.Pod) ([]metricsv1beta1.PodMetrics, error) {
	measured, err := s.measured(ctx, pods)
	if err != nil {
		s.logger.Error(err, "Could not get the usage of pods from the host")
		return nil, apierrors.NewServiceUnavailable("the usage of pods is not available now; try again later")
	}
	known := []metricsv1beta1.PodMetrics{}
	for _, v := range pods {
		host, ok := s.host.Pod(s.space, v)
		if !ok {
			continue
		}
		if m := measured[host.Name]; m != nil && m.Namespace == host.Namespace {
			known = append(known, translated(v, m))
		}
	}
	return known, nil
}

// measured asks the host, by names of its own.
func (s *Streams) measured(ctx context.Context, pods []*corev1.Pod) (map[string]*metricsv1beta1.PodMetrics, error) {
	measured := map[string]*metricsv1beta1.PodMetrics{}
	of := s.usage.PodMetricses(s.space.HostNamespace())
	switch len(pods) {
	case 0:
	case 1:
		host, ok := s.host.Pod(s.space, pods[0])
		if !ok {
			break
		}
		m, err := of.Get(ctx, host.Name, metav1.GetOptions{})
		if err == nil {
			measured[m.Name] = m
		} else if !apierrors.IsNotFound(err) {
			return nil, err
		}
	default:
		list, err := of.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			measured[list.Items[i].Name] = &list.Items[i]
		}
	}
	return measured, nil
}

// translated is what is measured of v's host pod, of v.
func translated(v *corev1.Pod, m *metricsv1beta1.PodMetrics) metricsv1beta1.PodMetrics {
	out := metricsv1beta1.PodMetrics{
		ObjectMeta: metav1.ObjectMeta{Name: v.Name, Namespace: v.Namespace, Labels: v.Labels, CreationTimestamp: m.CreationTimestamp},
		Timestamp:  m.Timestamp, Window: m.Window, Containers: []metricsv1beta1.ContainerMetrics{},
	}
	for _, c := range m.Containers {
		if hasContainer(&v.Spec, c.Name) { // else the host has put it there
			out.Containers = append(out.Containers, c)
		}
	}
	return out
}

func hasContainer(spec *corev1.PodSpec, name string) bool {
	is := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(spec.Containers, is) || slices.ContainsFunc(spec.InitContainers, is) ||
		slices.ContainsFunc(spec.EphemeralContainers, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}
