// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/isolation/hostpolicy"
)

// Q4 (finding B17): a stolen account gets no device that the quota of its space doesn't name, and tolerates no taint of one.
func TestHostilePodsAreHeldToTheResourcesOfTheirQuota(t *testing.T) {
	asks := func(names ...corev1.ResourceName) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Requests = corev1.ResourceList{}
			for _, name := range names {
				p.Containers[0].Resources.Requests[name] = resource.MustParse("1")
			}
		}
	}
	tolerates := func(key string, asks func(*corev1.PodSpec)) func(*corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			asks(p)
			p.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
	const gpu, fpga, counted, nodes = "example.com/gpu", "example.com/fpga", "what the quota of the space names", "may not choose nodes"
	for name, tc := range map[string]struct {
		listed  string
		change  func(*corev1.PodSpec)
		refused string
	}{
		"a device without a quota":      {"", asks(gpu), counted},
		"a device":                      {"example.com/gpu,hugepages-2Mi", asks("cpu", gpu), ""},
		"huge pages":                    {"example.com/gpu,hugepages-2Mi", asks("hugepages-2Mi"), ""},
		"another device":                {"example.com/gpu,hugepages-2Mi", asks(gpu, fpga), counted},
		"huge pages of another size":    {"example.com/gpu,hugepages-2Mi", asks("hugepages-1Gi"), counted},
		"a part of a name":              {"example.com/gpus", asks(gpu), counted},
		"the taint of a device":         {gpu, tolerates(gpu, asks(gpu)), ""},
		"a taint without its device":    {gpu, tolerates(gpu, asks("cpu")), nodes},
		"the taint of another device":   {gpu, tolerates(fpga, asks(gpu)), nodes},
		"all taints":                    {gpu, tolerates("", asks(gpu)), nodes},
		"all taints, without any quota": {"", tolerates("", asks("cpu")), nodes},
		"a device of an init container": {gpu, func(p *corev1.PodSpec) {
			p.InitContainers = []corev1.Container{{Name: "i", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{fpga: resource.MustParse("1")}}}}
		}, counted},
		"huge pages of the pod": {gpu, func(p *corev1.PodSpec) {
			p.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}}
		}, counted},
		"a claim on a device": {gpu, func(p *corev1.PodSpec) {
			p.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: ptr.To("mine--default--d")}}
		}, counted},
		"a claim on a device of a class": {gpu + ",class:fast", func(p *corev1.PodSpec) {
			p.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: ptr.To("mine--default--d")}}
		}, ""},
		"a claim of the host": {"class:fast", func(p *corev1.PodSpec) {
			p.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimName: ptr.To("d")}}
		}, hostpolicy.OnlyFields},
		"a template": {"class:fast", func(p *corev1.PodSpec) {
			p.ResourceClaims = []corev1.PodResourceClaim{{Name: "d", ResourceClaimTemplateName: ptr.To("mine--default--d")}}
		}, hostpolicy.OnlyFields},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, hostpolicy.Pods(), map[string]string{hostpolicy.AnnotationPodResources: tc.listed})
			pod := podOf(1, 0, 0)
			tc.change(&pod.Spec)
			if message, _ := e.refuses(of("", "pods", "Pod", pod)); (tc.refused == "") != (message == "") || !strings.Contains(message, tc.refused) {
				t.Errorf("%q, want %q", message, tc.refused)
			}
		})
	}
}
