// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// share gives c, of a pod that asks for resources as a whole, what keeps the
// host's defaults away from it: its requests and limits could pass the pod's.
func share(c *corev1.Container, pod *corev1.ResourceRequirements, defaults corev1.ResourceList) {
	for name, least := range defaults {
		most, limited := pod.Limits[name]
		asked, asks := pod.Requests[name]
		if !limited && !asks {
			continue
		}
		if _, own := c.Resources.Requests[name]; !own {
			put(&c.Resources.Requests, name, resource.Quantity{})
		}
		if _, own := c.Resources.Limits[name]; !own {
			switch {
			case limited:
				put(&c.Resources.Limits, name, most)
			case asked.Cmp(least) > 0:
				put(&c.Resources.Limits, name, asked)
			}
		}
	}
}

func put(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = quantity.DeepCopy()
}

// limit gives c a limit where it asks for more than the default one, without
// saying how much more it may have: the host would set the default below what
// is asked for, and refuse that.
func limit(c *corev1.Container, defaults corev1.ResourceList) {
	for name, most := range defaults {
		asked, asks := c.Resources.Requests[name]
		if _, limited := c.Resources.Limits[name]; !asks || limited || asked.Cmp(most) <= 0 {
			continue
		}
		put(&c.Resources.Limits, name, asked)
	}
}
