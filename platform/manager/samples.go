// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/metering"
	"github.com/berth-dev/berth/metrics"
)

// Samples returns what all spaces use now, awake or not. What they use of the host is in the status of their objects, which follows the
// host's quotas.
func (m *Manager) Samples() (samples []metering.Sample) {
	known := map[string]metrics.Space{}
	for _, space := range m.Metrics() {
		known[space.Name] = space
	}
	for _, object := range m.objects.All() {
		if space, served := known[object.Name]; served {
			samples = append(samples, sampleOf(object, space))
		}
	}
	return samples
}

func sampleOf(object *v1alpha1.Space, space metrics.Space) metering.Sample {
	used := func(name corev1.ResourceName) float64 {
		amount := object.Status.Quota.Used[name]
		return amount.AsApproximateFloat64()
	}
	sample := metering.Sample{
		Tenant: object.Spec.TenantName, Space: object.Name, CPU: used(corev1.ResourceRequestsCPU), Memory: used(corev1.ResourceRequestsMemory),
		Storage: used(corev1.ResourceRequestsStorage), Pods: used(corev1.ResourcePods),
	}
	if space.Store != nil {
		sample.Store = float64(space.Store.File)
	}
	for _, limit := range space.Limits {
		if limit.Quantity == bounds.Objects {
			objects := float64(limit.Used)
			sample.Objects = &objects
		}
	}
	return sample
}
