// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

func TestPushPodChangesWhatMayChange(t *testing.T) {
	cases := map[string]struct {
		reason string
		tenant func(v *corev1.Pod)
		others func(host *corev1.Pod)
		want   func(host *corev1.Pod)
		silent bool
	}{
		"Nothing": {
			reason: "the host's defaults and its scheduler's choice are not the tenant's to undo",
			others: func(host *corev1.Pod) {
				host.Spec.NodeName, host.Spec.SchedulerName, host.Spec.ServiceAccountName = "node-1", "default-scheduler", "default"
				host.Spec.Priority = ptr.To[int32](0)
			},
			silent: true,
		},
		"Labels": {
			reason: "services find pods by labels",
			tenant: func(v *corev1.Pod) { v.Labels = map[string]string{"run": "canary"} },
			want:   func(host *corev1.Pod) { host.Labels["run"] = "canary" },
		},
		"NodeLabels": {
			reason: "the host tells pods of their nodes by labels, and would be written to for each pod",
			others: func(host *corev1.Pod) {
				host.Labels["topology.kubernetes.io/zone"], host.Labels["topology.kubernetes.io/region"] = "zone-a", "region"
			},
			silent: true,
		},
		"Image": {
			reason: "an image may change in place",
			tenant: func(v *corev1.Pod) { v.Spec.Containers[0].Image = "nginx:2" },
			want:   func(host *corev1.Pod) { host.Spec.Containers[0].Image = "nginx:2" },
		},
		"ImageBesideSidecars": {
			reason: "a webhook of the host's may have put containers in front",
			tenant: func(v *corev1.Pod) { v.Spec.Containers[0].Image = "nginx:2" },
			others: func(host *corev1.Pod) {
				host.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "envoy"}}, host.Spec.Containers...)
			},
			want: func(host *corev1.Pod) { host.Spec.Containers[1].Image = "nginx:2" },
		},
		"Deadline": {
			reason: "a deadline may be set later",
			tenant: func(v *corev1.Pod) { v.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) },
			want:   func(host *corev1.Pod) { host.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) },
		},
		"NoDeadline": {
			reason: "a deadline can not be taken back, and asking for it would fail for ever",
			others: func(host *corev1.Pod) { host.Spec.ActiveDeadlineSeconds = ptr.To[int64](60) },
			silent: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			have := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
			if tc.others != nil {
				tc.others(have)
			}
			expected := have.DeepCopy()
			if tc.want != nil {
				tc.want(expected)
			}
			if tc.tenant != nil {
				tc.tenant(v)
			}
			wanted := pod.ToHost(sample.Demo(), v, sample.Surroundings{})
			if changed := pod.Push(wanted, have); changed == tc.silent {
				t.Errorf("%s: Push reports %v", tc.reason, changed)
			}
			if diff := cmp.Diff(expected, have); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// S7: a push that reports a change for ever would write for ever.
func TestASecondPushOfAPodReportsNoChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := sample.AnySurroundings(t, "default")
		wanted, have := pod.ToHost(sample.Demo(), sample.TenantPod(t), in), pod.ToHost(sample.Demo(), sample.TenantPod(t), in)
		before := wanted.DeepCopy()
		pod.Push(wanted, have)
		if pod.Push(wanted, have) {
			t.Fatalf("a second push reports a change")
		}
		if diff := cmp.Diff(before, wanted); diff != "" {
			t.Fatalf("a push changed what is wanted: -before +after:\n%s", diff)
		}
		if pod.Push(have, have.DeepCopy()) {
			t.Fatalf("a push onto an equal pod reports a change")
		}
	})
}
