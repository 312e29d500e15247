// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// noClaims is the reason why resource claims are refused.
const noClaims = "the platform doesn't sync resource claims of the space; remove them here and in the containers' resources, and request " + resourcev1.ResourceDeviceClassPrefix +
	"CLASS in the containers' limits, if the quota of the space names it; or ask the platform's admin to sync resourceclaims"

// noClasses is the reason why resource claims are refused in a space that can't have any.
const noClasses = "the quota of the space names no class of devices; remove the claims here and in the containers' resources, or ask the platform's admin to add CLASS" +
	corev1.ResourceClaimsPerClass + " to the quota"

// checkResources refuses resources that the quota of the space doesn't count, and resource claims if they aren't synced.
func checkResources(s *translate.Settings, path *field.Path, spec *corev1.PodSpec) (errs field.ErrorList) {
	counted, reason := s.Counted, ""
	if !s.Claims {
		reason = noClaims
	} else if !counted.AllowsClaims() {
		reason = noClasses
	}
	if len(spec.ResourceClaims) > 0 && reason != "" {
		errs = append(errs, field.Forbidden(path.Child("resourceClaims"), reason))
	}
	errs = append(errs, translate.AtMost(path.Child("resourceClaims"), len(spec.ResourceClaims), bounds.ClaimParts)...)
	eachResources(path, spec, func(path *field.Path, r *corev1.ResourceRequirements) {
		if len(r.Claims) > 0 && reason != "" {
			errs = append(errs, field.Forbidden(path.Child("claims"), reason))
		}
		for at, list := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
			for name, value := range list {
				if !counted.Allows(name) {
					errs = append(errs, field.Forbidden(path.Child(at).Key(string(name)), fmt.Sprintf("%s requested, but the quota of the space doesn't name %s; "+
						"remove the resource, or ask the platform's admin to add it to the quota", value.String(), translate.QuotaName(name))))
				}
			}
		}
	})
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return errs
}

// dropUncounted clears from a host pod what [checkResources] refuses.
func dropUncounted(s *translate.Settings, spec *corev1.PodSpec) {
	eachResources(nil, spec, func(_ *field.Path, r *corev1.ResourceRequirements) {
		if !s.Claims {
			r.Claims = nil
		}
		for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
			maps.DeleteFunc(list, func(name corev1.ResourceName, _ resource.Quantity) bool { return !s.Counted.Allows(name) })
		}
	})
}

// eachResources calls f with the resources of a pod and of each of its containers.
func eachResources(path *field.Path, spec *corev1.PodSpec, f func(*field.Path, *corev1.ResourceRequirements)) {
	if spec.Resources != nil {
		f(path.Child("resources"), spec.Resources)
	}
	eachContainerAt(path, spec, func(path *field.Path, c *corev1.Container) { f(path.Child("resources"), &c.Resources) })
}

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
