// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// claimingPod refers to a claim, and to a template.
func claimingPod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To("shared")}, {Name: "b", ResourceClaimTemplateName: ptr.To("each")}},
		Containers:     []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "b", Request: "r"}}}}},
	}}
}

// Q4: a host pod refers to the host's claims, which include those that the space created of templates, and to no template.
func TestAHostPodRefersToTheHostsClaims(t *testing.T) {
	space := translate.Space{Name: "shop", NodeKey: []byte("key"), Settings: translate.Settings{Claims: true}}
	v := claimingPod()
	if !pod.AwaitsClaims(v) {
		t.Error("a pod doesn't wait for the claim of its template")
	}
	v.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "b", ResourceClaimName: ptr.To("p-b-x1y2z")}}
	if pod.AwaitsClaims(v) {
		t.Error("a pod waits, although its claims exist")
	}
	host := pod.ToHost(space, v, pod.Surroundings{})
	want := []corev1.PodResourceClaim{{Name: "a", ResourceClaimName: ptr.To("shop--default--shared")}, {Name: "b", ResourceClaimName: ptr.To("shop--default--p-b-x1y2z")}}
	if diff := cmp.Diff(want, host.Spec.ResourceClaims); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if claims := host.Spec.Containers[0].Resources.Claims; len(claims) != 1 || claims[0] != v.Spec.Containers[0].Resources.Claims[0] {
		t.Errorf("the container has the claims %v", claims)
	}
	host.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "of-the-host"}}
	if diff := cmp.Diff(v.Status.ResourceClaimStatuses, pod.PullStatus(space, v, host).ResourceClaimStatuses); diff != "" {
		t.Errorf("the space loses what its controller wrote: -want +got:\n%s", diff)
	}

	v.Status.ResourceClaimStatuses[0].ResourceClaimName = ptr.To("p-b-again")
	again := pod.ToHost(space, v, pod.Surroundings{})
	if !pod.ClaimsDiffer(again, host) || pod.ClaimsDiffer(again, again) {
		t.Error("a pod that waits is created again if, and only if, its claims are others")
	}
	host.Spec.NodeName = "n"
	if pod.ClaimsDiffer(again, host) {
		t.Error("a pod that runs is created again")
	}

	space.Settings.Claims = false
	if host := pod.ToHost(space, v, pod.Surroundings{}); host.Spec.ResourceClaims != nil || host.Spec.Containers[0].Resources.Claims != nil {
		t.Error("where claims aren't synced, a host pod has some")
	}
}

// Q4: a pod that refers to claims is refused where none can be, with what to ask for.
func TestPodsWithClaimsAreRefusedWhereThereAreNone(t *testing.T) {
	class := translate.CountedBy(corev1.ResourceList{translate.ClassQuotaName("fast"): {}})
	for name, tc := range map[string]struct {
		settings translate.Settings
		says     string // empty: it is allowed
	}{
		"not synced":             {translate.Settings{Counted: class}, "sync resourceclaims"},
		"no class":               {translate.Settings{Claims: true}, "add CLASS.deviceclass.resource.k8s.io/devices to the quota"},
		"synced, and of a class": {translate.Settings{Claims: true, Counted: class}, ""},
	} {
		v := claimingPod()
		errs := pod.CheckSettings(&tc.settings, &v.ObjectMeta, &v.Spec)
		if tc.says == "" && len(errs) > 0 || tc.says != "" && len(errs) != 2 {
			t.Errorf("%s: %v", name, errs)
		}
		for _, err := range errs {
			if !strings.Contains(err.Detail, tc.says) {
				t.Errorf("%s: %v, want %q", name, err, tc.says)
			}
		}
	}
	v := claimingPod()
	v.Spec.ResourceClaims = make([]corev1.PodResourceClaim, 33)
	if errs := pod.CheckSettings(&translate.Settings{Claims: true, Counted: class}, &v.ObjectMeta, &v.Spec); len(errs) != 1 || !strings.Contains(errs[0].Error(), "33 parts, at most 32") {
		t.Errorf("too many claims: %v", errs)
	}
}
