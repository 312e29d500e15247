// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// affinity translates the terms between pods. All pods of a space share one
// host namespace, so a term's namespaces become a requirement on the label that
// tells them apart. Terms about nodes are for [Placement].
func affinity(s translate.Space, v *corev1.Pod, namespaces []*corev1.Namespace) *corev1.Affinity {
	if v.Spec.Affinity == nil {
		return nil
	}
	a := v.Spec.Affinity.DeepCopy()
	a.NodeAffinity = nil
	selected := translate.NewSelectedNamespaces(namespaces)
	for _, term := range terms(a) {
		toHostTerm(s, v, selected, term)
	}
	return a
}

// terms are all those between pods, by their fields.
func terms(a *corev1.Affinity) iter.Seq2[*field.Path, *corev1.PodAffinityTerm] {
	return func(yield func(*field.Path, *corev1.PodAffinityTerm) bool) {
		if a == nil {
			return
		}
		var pods corev1.PodAffinity
		var apart corev1.PodAntiAffinity
		if a.PodAffinity != nil {
			pods = *a.PodAffinity
		}
		if a.PodAntiAffinity != nil {
			apart = *a.PodAntiAffinity
		}
		path := field.NewPath("spec", "affinity")
		_ = yieldTerms(path.Child("podAffinity"), pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution, yield) &&
			yieldTerms(path.Child("podAntiAffinity"), apart.RequiredDuringSchedulingIgnoredDuringExecution, apart.PreferredDuringSchedulingIgnoredDuringExecution, yield)
	}
}

func yieldTerms(path *field.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm, yield func(*field.Path, *corev1.PodAffinityTerm) bool) bool {
	for i := range required {
		if !yield(path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), &required[i]) {
			return false
		}
	}
	for i := range preferred {
		if !yield(path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"), &preferred[i].PodAffinityTerm) {
			return false
		}
	}
	return true
}

// CheckNamespaces says if a pod's terms select too many of its space's
// namespaces, which may have become more since. Those that do are translated to
// select none.
func CheckNamespaces(spec *corev1.PodSpec, namespaces []*corev1.Namespace) field.ErrorList {
	selected := translate.NewSelectedNamespaces(namespaces)
	for path, term := range terms(spec.Affinity) {
		if term.NamespaceSelector == nil {
			continue
		}
		if _, ok := selected.By(term.NamespaceSelector); !ok {
			return field.ErrorList{field.Forbidden(path.Child("namespaceSelector"), translate.TooManySelected)}
		}
	}
	return nil
}

// countTerms refuses more terms and constraints than anybody places pods by.
func countTerms(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	count := 0
	for range terms(spec.Affinity) {
		count++
	}
	return append(translate.AtMost(path.Child("affinity"), count, bounds.AffinityTerms),
		translate.AtMost(path.Child("topologySpreadConstraints"), len(spec.TopologySpreadConstraints), bounds.SpreadConstraints)...)
}

func toHostTerm(s translate.Space, v *corev1.Pod, selected *translate.SelectedNamespaces, term *corev1.PodAffinityTerm) {
	names := slices.Clone(term.Namespaces)
	if len(names) == 0 && term.NamespaceSelector == nil {
		names = []string{v.Namespace}
	}
	if term.NamespaceSelector != nil {
		matching, _ := selected.By(term.NamespaceSelector)
		names = append(names, matching...)
	}
	slices.Sort(names)
	term.Namespaces, term.NamespaceSelector = nil, nil
	term.LabelSelector = s.Selector(term.LabelSelector, slices.Compact(names)...)
	// The space's API server has already merged these into the selector.
	term.MatchLabelKeys, term.MismatchLabelKeys = nil, nil
}

func topologySpread(s translate.Space, v *corev1.Pod) []corev1.TopologySpreadConstraint {
	var out []corev1.TopologySpreadConstraint
	for i := range v.Spec.TopologySpreadConstraints {
		c := v.Spec.TopologySpreadConstraints[i].DeepCopy()
		c.LabelSelector = s.Selector(c.LabelSelector, v.Namespace)
		// Nodes are hidden: neither labels nor taints of theirs may be asked about.
		c.NodeAffinityPolicy, c.NodeTaintsPolicy = nil, nil
		c.MatchLabelKeys = nil // merged into the selector by the space's API server
		out = append(out, *c)
	}
	return out
}
