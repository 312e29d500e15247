// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
)

// AwaitsClaims reports whether the space has yet to create a claim of a template that the pod refers to.
func AwaitsClaims(v *corev1.Pod) bool {
	for i := range v.Spec.ResourceClaims {
		if claimOf(v, &v.Spec.ResourceClaims[i]) == "" {
			return true
		}
	}
	return false
}

// ClaimsDiffer reports whether a host pod that isn't scheduled refers to a claim that the space has replaced by another.
func ClaimsDiffer(want, have *corev1.Pod) bool {
	return have.Spec.NodeName == "" && !equality.Semantic.DeepEqual(want.Spec.ResourceClaims, have.Spec.ResourceClaims)
}

// resourceClaims returns the claims of a host pod. Templates stay in the space: the host pod refers to the claims that the
// space's controller created of them.
func resourceClaims(s translate.Space, v *corev1.Pod) (out []corev1.PodResourceClaim) {
	if !s.Settings.Claims {
		return nil
	}
	for i := range v.Spec.ResourceClaims {
		claim := &v.Spec.ResourceClaims[i]
		out = append(out, corev1.PodResourceClaim{
			Name: claim.Name, ResourceClaimName: ptr.To(s.HostName(v.Namespace, claimOf(v, claim), translate.LimitSubdomain)),
		})
	}
	return out
}

// claimOf returns the name of a claim of a pod; "" if it doesn't exist yet.
func claimOf(v *corev1.Pod, claim *corev1.PodResourceClaim) string {
	if claim.ResourceClaimName != nil {
		return *claim.ResourceClaimName
	}
	for i := range v.Status.ResourceClaimStatuses {
		if status := &v.Status.ResourceClaimStatuses[i]; status.Name == claim.Name {
			return ptr.Deref(status.ResourceClaimName, "")
		}
	}
	return ""
}
