// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Placement says on which of the host's nodes a space's pods run (M2). The zero
// value leaves that to the host's scheduler alone.
type Placement struct {
	// Selector is added to each pod.
	Selector map[string]string
	// Labels are the keys of nodes' labels that tenants may select by.
	Labels []string
}

// String is what the host's admission reads of it: the labels of the selector,
// as key=value, and the keys for tenants, with commas between.
func (p Placement) String() string {
	all := slices.Clone(p.Labels)
	for key, value := range p.Selector {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Check lists by which labels that are not for tenants a pod would choose, probe
// or name nodes, each with its field.
func (p Placement) Check(spec *corev1.PodSpec) (errs field.ErrorList) {
	path := field.NewPath("spec")
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		errs = append(errs, p.checkLabel(path.Child("nodeSelector").Key(key), key, []string{spec.NodeSelector[key]})...)
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return errs
	}
	path, affinity := path.Child("affinity", "nodeAffinity"), spec.Affinity.NodeAffinity
	if len(p.Labels) == 0 {
		return append(errs, field.Forbidden(path, p.remedy()))
	}
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		for i := range required.NodeSelectorTerms {
			at := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i)
			errs = append(errs, p.checkTerm(at, &required.NodeSelectorTerms[i])...)
		}
	}
	for i := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference")
		errs = append(errs, p.checkTerm(at, &affinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference)...)
	}
	return errs
}

func (p Placement) checkTerm(path *field.Path, term *corev1.NodeSelectorTerm) (errs field.ErrorList) {
	if len(term.MatchFields) > 0 {
		errs = append(errs, field.Forbidden(path.Child("matchFields"), "the names of nodes are hidden in a space; remove the field"))
	}
	for i, e := range term.MatchExpressions {
		errs = append(errs, p.checkLabel(path.Child("matchExpressions").Index(i).Child("key"), e.Key, nil)...)
	}
	return errs
}

// checkLabel refuses a label that is not for tenants, and one that the admin has
// chosen another value of: the pod would run nowhere, or not where it says.
func (p Placement) checkLabel(path *field.Path, key string, values []string) field.ErrorList {
	if !slices.Contains(p.Labels, key) {
		return field.ErrorList{field.Forbidden(path, p.remedy())}
	}
	if chosen, ok := p.Selector[key]; ok && len(values) > 0 && !slices.Contains(values, chosen) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("pods of this space run on nodes with %s=%s only", key, chosen))}
	}
	return nil
}

func (p Placement) remedy() string {
	if len(p.Labels) == 0 {
		return "nodes are hidden in a space; remove the field and let the host's scheduler choose"
	}
	return "nodes are hidden in a space, but for the labels " + strings.Join(p.Labels, ", ") + "; remove the field or use these"
}

// Place has v's host pod, which is about to be made, run where v asks to, and
// where the space's pods run. v must have passed [Placement.Check].
func (p Placement) Place(v, host *corev1.Pod) {
	selector := map[string]string{}
	maps.Copy(selector, v.Spec.NodeSelector)
	maps.Copy(selector, p.Selector)
	if len(selector) > 0 {
		host.Spec.NodeSelector = selector
	}
	if a := v.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		host.Spec.Affinity.NodeAffinity = a.NodeAffinity.DeepCopy()
	}
}
