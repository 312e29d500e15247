// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultLimits are what a container may use that sets no limit of its own. The
// host's walls say the same: a quota counts only what is limited.
func DefaultLimits() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
	}
}

// limit gives c a limit where it asks for more than the default one, without
// saying how much more it may have: the host would set the default below what
// is asked for, and refuse that.
func limit(c *corev1.Container) {
	for name, most := range DefaultLimits() {
		asked, asks := c.Resources.Requests[name]
		if _, limited := c.Resources.Limits[name]; !asks || limited || asked.Cmp(most) <= 0 {
			continue
		}
		if c.Resources.Limits == nil {
			c.Resources.Limits = corev1.ResourceList{}
		}
		c.Resources.Limits[name] = asked.DeepCopy()
	}
}
