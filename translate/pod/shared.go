// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"iter"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// sharedResource reports whether a space's quota bounds what pods ask of a
// resource. A quota ignores what it does not name: of all others, devices and
// huge pages among them, the first tenant would take the last (Q4).
func sharedResource(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// commonTopology reports whether nodes differ by a topology key on any cluster.
// Asked about keys of its choice, the scheduler would tell which labels the
// host's nodes bear (N1).
func commonTopology(key string) bool {
	return key == corev1.LabelHostname || key == corev1.LabelTopologyZone || key == corev1.LabelTopologyRegion
}

// checkShared refuses resources and topology keys that are not for spaces.
func checkShared(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	eachResources(path, spec, func(path *field.Path, r *corev1.ResourceRequirements) {
		if len(r.Claims) > 0 {
			errs = append(errs, field.Forbidden(path.Child("claims"), "spaces cannot use devices of the host; remove the claims"))
		}
		for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
			for name := range list {
				if !sharedResource(name) {
					errs = append(errs, field.Forbidden(path.Key(string(name)), "pods of a space can request cpu, memory, and ephemeral-storage only; remove the resource"))
				}
			}
		}
	})
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

// dropUnshared clears from a host pod what [checkShared] refuses.
func dropUnshared(spec *corev1.PodSpec) {
	eachResources(nil, spec, func(_ *field.Path, r *corev1.ResourceRequirements) {
		r.Claims = nil
		for _, list := range []corev1.ResourceList{r.Limits, r.Requests} {
			maps.DeleteFunc(list, func(name corev1.ResourceName, _ resource.Quantity) bool { return !sharedResource(name) })
		}
	})
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

// eachResources visits the resources of a pod and of all its containers.
func eachResources(path *field.Path, spec *corev1.PodSpec, visit func(*field.Path, *corev1.ResourceRequirements)) {
	if spec.Resources != nil {
		visit(path.Child("resources"), spec.Resources)
	}
	eachContainerAt(path, spec, func(path *field.Path, c *corev1.Container) { visit(path.Child("resources"), &c.Resources) })
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
