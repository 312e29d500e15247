// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/translate"
)

// S4, Q3.
func TestPodLimitsContainersThatAskForMoreThanTheDefaultLimit(t *testing.T) {
	cpu := func(amount string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(amount)}
	}
	for name, test := range map[string]struct {
		reason          string
		requests, limit corev1.ResourceList
		want            corev1.ResourceList
	}{
		"asks for nothing":      {"the host sets the default", nil, nil, nil},
		"asks for little":       {"the host's default leaves it more", cpu("100m"), nil, nil},
		"asks for the default":  {"as much as the host sets", cpu("250m"), nil, nil},
		"asks for more":         {"the host would refuse a limit below the request", cpu("500m"), nil, cpu("500m")},
		"has a limit":           {"the tenant's own limit stays", cpu("500m"), cpu("2"), cpu("2")},
		"has a limit and asked": {"also where it is the smaller", cpu("100m"), cpu("100m"), cpu("100m")},
	} {
		t.Run(name, func(t *testing.T) {
			c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: test.requests, Limits: test.limit}}
			v := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}, InitContainers: []corev1.Container{c}}}
			host := ToHost(translate.Space{Name: "a"}, v, Surroundings{})
			for _, c := range append(host.Spec.Containers, host.Spec.InitContainers...) {
				if !equality.Semantic.DeepEqual(c.Resources.Limits, test.want) {
					t.Errorf("limits are %v, want %v: %s", c.Resources.Limits, test.want, test.reason)
				}
			}
		})
	}
}
