// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// Q4 (finding B17): a pod has exactly those devices and huge pages that the quota of its space names.
func TestPodsHaveTheDevicesThatTheQuotaNames(t *testing.T) {
	space := sample.Demo()
	space.Settings.Counted = translate.CountedBy(corev1.ResourceList{"requests.example.com/gpu": resource.MustParse("4"), "requests.hugepages-2Mi": resource.MustParse("1Gi")})
	one := resource.MustParse("1")
	v := sample.PlainPod()
	ask := func(names ...corev1.ResourceName) {
		list := corev1.ResourceList{corev1.ResourceCPU: one}
		for _, name := range names {
			list[name] = one
		}
		v.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	}
	toleration := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	}
	v.Spec.Tolerations = []corev1.Toleration{toleration("example.com/gpu"), toleration("example.com/fpga"), {Operator: corev1.TolerationOpExists}}

	ask("example.com/gpu", "hugepages-2Mi")
	if errs := pod.CheckSettings(&space.Settings, &v.ObjectMeta, &v.Spec); len(errs) > 0 {
		t.Errorf("refused: %v", errs)
	}
	host := pod.ToHost(space, v, sample.Surroundings{}).Spec
	for _, name := range []corev1.ResourceName{"example.com/gpu", "hugepages-2Mi"} {
		if limit := host.Containers[0].Resources.Limits[name]; limit.Value() != 1 {
			t.Errorf("the host pod may use %s of %s, want 1", limit.String(), name)
		}
	}
	if len(host.Tolerations) != 1 || host.Tolerations[0] != toleration("example.com/gpu") {
		t.Errorf("the host pod tolerates %v, want only the taint of the resource that it requests", host.Tolerations)
	}

	ask("example.com/fpga", "hugepages-1Gi")
	errs := pod.CheckSettings(&space.Settings, &v.ObjectMeta, &v.Spec)
	text := errs.ToAggregate().Error()
	for _, want := range []string{
		"spec.containers[0].resources.limits[example.com/fpga]", "spec.containers[0].resources.requests[hugepages-1Gi]",
		"1 requested, but the quota of the space doesn't name requests.example.com/fpga; remove the resource, or ask the platform's admin",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	host = pod.ToHost(space, v, sample.Surroundings{}).Spec
	if len(host.Containers[0].Resources.Limits) != 1 || len(host.Tolerations) != 0 {
		t.Errorf("a pod that slipped by the check has %v and tolerates %v", host.Containers[0].Resources.Limits, host.Tolerations)
	}
}
