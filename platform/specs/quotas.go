// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// checkQuota rejects what the host would reject.
func checkQuota(quota map[corev1.ResourceName]resource.Quantity, path *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(quota)) {
		for _, problem := range validation.IsQualifiedName(string(name)) {
			errs = append(errs, field.Invalid(path.Key(string(name)), name, "must be the name of a resource: "+problem))
		}
		if value := quota[name]; value.Sign() < 0 {
			errs = append(errs, field.Invalid(path.Key(string(name)), value.String(), "must be 0 or more"))
		}
	}
	return errs
}

// scopedQuotasOf returns the scoped quotas of a spec by name.
func scopedQuotasOf(quotas []v1alpha1.ScopedQuota, path *field.Path) (out map[string]corev1.ResourceQuotaSpec, errs field.ErrorList) {
	for i := range quotas {
		q, at := &quotas[i], path.Index(i)
		for _, problem := range validation.IsDNS1123Label(q.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), q.Name, problem))
		}
		if _, duplicate := out[q.Name]; duplicate {
			errs = append(errs, field.Duplicate(at.Child("name"), q.Name))
		}
		errs = append(errs, checkQuota(q.Hard, at.Child("hard"))...)
		errs = append(errs, checkScopes(q, at)...)
		if out == nil {
			out = map[string]corev1.ResourceQuotaSpec{}
		}
		out[q.Name] = corev1.ResourceQuotaSpec{Hard: q.Hard, Scopes: q.Scopes, ScopeSelector: selectorOf(&q.ScopeSelector)}
	}
	return out, errs
}

func selectorOf(selector *v1alpha1.ScopeSelector) *corev1.ScopeSelector {
	if len(selector.MatchExpressions) == 0 {
		return nil
	}
	out := &corev1.ScopeSelector{}
	for _, e := range selector.MatchExpressions {
		out.MatchExpressions = append(out.MatchExpressions, corev1.ScopedResourceSelectorRequirement(e))
	}
	return out
}

// checkScopes rejects what the schema of Space rejects, because spaces of a configuration file are not validated by it. The host
// rejects scopes that don't fit each other or the resources.
func checkScopes(q *v1alpha1.ScopedQuota, path *field.Path) (errs field.ErrorList) {
	supported := []corev1.ResourceQuotaScope{
		corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort, corev1.ResourceQuotaScopePriorityClass,
		corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
	}
	if len(q.Scopes) == 0 && len(q.ScopeSelector.MatchExpressions) == 0 {
		errs = append(errs, field.Required(path.Child("scopes"), "set scopes or a scopeSelector; what is for all pods belongs in spec.quota"))
	}
	for i, scope := range q.Scopes {
		if !slices.Contains(supported, scope) {
			errs = append(errs, field.NotSupported(path.Child("scopes").Index(i), scope, supported))
		}
	}
	for i, e := range q.ScopeSelector.MatchExpressions {
		if !slices.Contains(supported, e.ScopeName) {
			errs = append(errs, field.NotSupported(path.Child("scopeSelector", "matchExpressions").Index(i).Child("scopeName"), e.ScopeName, supported))
		}
	}
	return errs
}

func bandwidthOf(spec *v1alpha1.PodBandwidth, path *field.Path) (out translate.PodBandwidth, errs field.ErrorList) {
	ingress, errs := boundOf(&spec.Ingress, path.Child("ingress"))
	egress, more := boundOf(&spec.Egress, path.Child("egress"))
	return translate.PodBandwidth{Ingress: ingress, Egress: egress}, append(errs, more...)
}

func boundOf(spec *v1alpha1.Bandwidth, path *field.Path) (out translate.Bandwidth, errs field.ErrorList) {
	check := func(name string, value *resource.Quantity) {
		if value == nil {
			return
		}
		if _, err := pod.ParseBandwidth(value.String()); err != nil {
			errs = append(errs, field.Invalid(path.Child(name), value.String(), err.Error()))
		}
	}
	check("default", spec.Default)
	check("max", spec.Max)
	if spec.Default != nil && spec.Max != nil && spec.Default.Cmp(*spec.Max) > 0 {
		errs = append(errs, field.Invalid(path.Child("default"), spec.Default.String(), "must not exceed max, which is "+spec.Max.String()))
	}
	return translate.Bandwidth{Default: spec.Default, Max: spec.Max}, errs
}
