// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// affinity translates the terms between pods. All pods of a space share one
// host namespace, so a term's namespaces become a requirement on the label that
// tells them apart; terms about nodes are refused and left out.
func (s Space) affinity(v *corev1.Pod, namespaces []*corev1.Namespace) *corev1.Affinity {
	if v.Spec.Affinity == nil {
		return nil
	}
	a := v.Spec.Affinity.DeepCopy()
	a.NodeAffinity = nil
	if pods := a.PodAffinity; pods != nil {
		s.terms(v, namespaces, pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if pods := a.PodAntiAffinity; pods != nil {
		s.terms(v, namespaces, pods.RequiredDuringSchedulingIgnoredDuringExecution, pods.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return a
}

func (s Space) terms(v *corev1.Pod, namespaces []*corev1.Namespace, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for i := range required {
		s.term(v, namespaces, &required[i])
	}
	for i := range preferred {
		s.term(v, namespaces, &preferred[i].PodAffinityTerm)
	}
}

func (s Space) term(v *corev1.Pod, namespaces []*corev1.Namespace, term *corev1.PodAffinityTerm) {
	names := slices.Clone(term.Namespaces)
	if len(names) == 0 && term.NamespaceSelector == nil {
		names = []string{v.Namespace}
	}
	if term.NamespaceSelector != nil {
		// An invalid selector does not pass the space's validation.
		if selector, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector); err == nil {
			for _, ns := range namespaces {
				if selector.Matches(labels.Set(ns.Labels)) {
					names = append(names, ns.Name)
				}
			}
		}
	}
	slices.Sort(names)
	term.Namespaces, term.NamespaceSelector = nil, nil
	term.LabelSelector = s.Selector(term.LabelSelector, slices.Compact(names)...)
	// The space's API server has already merged these into the selector.
	term.MatchLabelKeys, term.MismatchLabelKeys = nil, nil
}

func (s Space) topologySpread(v *corev1.Pod) []corev1.TopologySpreadConstraint {
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
