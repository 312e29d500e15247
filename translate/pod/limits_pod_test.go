// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// S4: the host's defaults for containers must not pass what the pod as a whole
// may have: the host would refuse it.
func TestAPodWithResourcesAsAWholeKeepsTheHostsDefaultsAway(t *testing.T) {
	cases := map[string]struct {
		reason    string
		pod, asks corev1.ResourceRequirements
		want      corev1.ResourceRequirements
	}{
		"Limits": {
			reason: "each container may use all of it",
			pod:    corev1.ResourceRequirements{Requests: list("100m", "64Mi"), Limits: list("100m", "64Mi")},
			want:   corev1.ResourceRequirements{Requests: list("0", "0"), Limits: list("100m", "64Mi")},
		},
		"Requests": {
			reason: "the default limit holds, but for a pod that asks for more",
			pod:    corev1.ResourceRequirements{Requests: list("1", "64Mi")},
			want:   corev1.ResourceRequirements{Requests: list("0", "0"), Limits: list("1", "")},
		},
		"Own": {
			reason: "what the tenant said of a container stays",
			pod:    corev1.ResourceRequirements{Requests: list("1", ""), Limits: list("2", "")},
			asks:   corev1.ResourceRequirements{Requests: list("500m", ""), Limits: list("600m", "")},
			want:   corev1.ResourceRequirements{Requests: list("500m", ""), Limits: list("600m", "")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Spec.Resources, v.Spec.Containers[0].Resources = &tc.pod, tc.asks
			got := pod.ToHost(sample.Demo(), v, sample.Surroundings{}).Spec.Containers[0].Resources
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
