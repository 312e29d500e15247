// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// M4 (S12): no pod delays the drain of a node, or the deletion of its space, for longer
// than an hour: not by its grace period, nor by that of a probe or of its deletion.
func TestHostileGracePeriodsAreCapped(t *testing.T) {
	const year = int64(365 * 24 * 3600)
	v := sample.PlainPod()
	v.Spec.TerminationGracePeriodSeconds = ptr.To(year)
	v.Spec.InitContainers = []corev1.Container{{Name: "sidecar", StartupProbe: &corev1.Probe{TerminationGracePeriodSeconds: ptr.To(year)}}}
	v.Spec.Containers[0].LivenessProbe = &corev1.Probe{TerminationGracePeriodSeconds: ptr.To(year)}
	v.DeletionGracePeriodSeconds = ptr.To(year)
	fields := map[string]bool{}
	for _, e := range pod.Check(&v.ObjectMeta, &v.Spec) {
		fields[e.Error()] = true
	}
	const says = ": Invalid value: 31536000: 31536000 seconds, at most 3600 are possible (limit grace-period-seconds): set a shorter period"
	for _, field := range []string{
		"spec.terminationGracePeriodSeconds", "spec.initContainers[0].startupProbe.terminationGracePeriodSeconds",
		"spec.containers[0].livenessProbe.terminationGracePeriodSeconds",
	} {
		if !fields[field+says] {
			t.Errorf("%s is not refused, only %v", field, fields)
		}
	}
	host := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
	for _, period := range []*int64{
		host.Spec.TerminationGracePeriodSeconds, host.Spec.InitContainers[0].StartupProbe.TerminationGracePeriodSeconds,
		host.Spec.Containers[0].LivenessProbe.TerminationGracePeriodSeconds, ptr.To(pod.Grace(v)),
	} {
		if *period != 3600 {
			t.Errorf("the host gets a period of %d seconds", *period)
		}
	}
	if v.DeletionGracePeriodSeconds = nil; pod.Grace(v) != 30 {
		t.Errorf("by default, containers have %d seconds", pod.Grace(v))
	}
	if *v.Spec.TerminationGracePeriodSeconds != year {
		t.Error("the tenant's pod was changed")
	}
}
