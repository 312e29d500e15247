// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// commonTopology reports whether nodes differ by a topology key on any cluster.
// Asked about keys of its choice, the scheduler would tell which labels the
// host's nodes bear (N1).
func commonTopology(key string) bool {
	return key == corev1.LabelHostname || key == corev1.LabelTopologyZone || key == corev1.LabelTopologyRegion
}

// checkTopologies refuses topology keys that are not for spaces.
func checkTopologies(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	const keys = "nodes are hidden in a space; use " + corev1.LabelHostname + ", " + corev1.LabelTopologyZone + " or " + corev1.LabelTopologyRegion
	for i, c := range spec.TopologySpreadConstraints {
		if !commonTopology(c.TopologyKey) {
			errs = append(errs, field.Forbidden(path.Child("topologySpreadConstraints").Index(i).Child("topologyKey"), keys))
		}
	}
	for at, term := range podTerms(spec.Affinity) {
		if !commonTopology(term.TopologyKey) {
			errs = append(errs, field.Forbidden(path.Child("affinity", at, "topologyKey"), keys))
		}
	}
	return errs
}

// replaceTopologies replaces in a host pod what [checkTopologies] refuses.
func replaceTopologies(spec *corev1.PodSpec) {
	for i := range spec.TopologySpreadConstraints {
		if c := &spec.TopologySpreadConstraints[i]; !commonTopology(c.TopologyKey) {
			c.TopologyKey = corev1.LabelHostname
		}
	}
	for _, term := range podTerms(spec.Affinity) {
		if !commonTopology(term.TopologyKey) {
			term.TopologyKey = corev1.LabelHostname
		}
	}
}

// podTerms yields the terms about other pods, each with the name of its field.
func podTerms(a *corev1.Affinity) iter.Seq2[string, *corev1.PodAffinityTerm] {
	return func(yield func(string, *corev1.PodAffinityTerm) bool) {
		if a == nil {
			return
		}
		all := func(name string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) bool {
			for i := range required {
				if !yield(name, &required[i]) {
					return false
				}
			}
			for i := range preferred {
				if !yield(name, &preferred[i].PodAffinityTerm) {
					return false
				}
			}
			return true
		}
		if p := a.PodAffinity; p != nil && !all("podAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution) {
			return
		}
		if p := a.PodAntiAffinity; p != nil {
			all("podAntiAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
}
