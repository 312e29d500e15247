// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

func placementOf(nodes *v1alpha1.Nodes, path *field.Path) (out translate.Placement, errs field.ErrorList) {
	errs = metav1validation.ValidateLabels(nodes.Selector, path.Child("selector"))
	for i, key := range nodes.AllowedLabels {
		at := path.Child("allowedLabels").Index(i)
		for _, problem := range validation.IsQualifiedName(key) {
			errs = append(errs, field.Invalid(at, key, problem))
		}
		if key == corev1.LabelHostname {
			errs = append(errs, field.Invalid(at, key, "the label would reveal the names of nodes; use a label that several nodes share"))
		}
	}
	out = translate.Placement{Selector: nodes.Selector, Labels: nodes.AllowedLabels}
	for i := range nodes.Tolerations {
		t := &nodes.Tolerations[i]
		errs = append(errs, checkToleration(t, path.Child("tolerations").Index(i))...)
		out.Tolerations = append(out.Tolerations, corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect})
	}
	return out, errs
}

// checkToleration rejects what the host would reject in each pod, and tolerations of all taints.
func checkToleration(t *v1alpha1.Toleration, path *field.Path) (errs field.ErrorList) {
	for _, problem := range validation.IsQualifiedName(t.Key) {
		errs = append(errs, field.Invalid(path.Child("key"), t.Key, problem))
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		for _, problem := range validation.IsValidLabelValue(t.Value) {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, problem))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty with the operator Exists"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator, []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
	}
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}))
	}
	return errs
}

func prioritiesOf(spec *v1alpha1.Priority, path *field.Path) (out translate.Priorities, errs field.ErrorList) {
	check := func(path *field.Path, name string) {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(path, name, problem))
		}
		if strings.HasPrefix(name, "system-") {
			errs = append(errs, field.Invalid(path, name, "classes of the system are for the host's own pods; use another class"))
		}
	}
	for i, name := range spec.AllowedClasses {
		check(path.Child("allowedClasses").Index(i), name)
	}
	if spec.DefaultClass != "" {
		check(path.Child("defaultClass"), spec.DefaultClass)
	}
	switch spec.Preemption {
	case "", v1alpha1.PreemptionDisabled, v1alpha1.PreemptionOwnNodes:
	default:
		errs = append(errs, field.NotSupported(path.Child("preemption"), spec.Preemption, []v1alpha1.Preemption{v1alpha1.PreemptionDisabled, v1alpha1.PreemptionOwnNodes}))
	}
	return translate.Priorities{Allowed: spec.AllowedClasses, Default: spec.DefaultClass, OwnNodes: spec.Preemption == v1alpha1.PreemptionOwnNodes}, errs
}

// checkOwnNodes rejects preemption on nodes that can't be a space's own. spec has the defaults.
func checkOwnNodes(spec *v1alpha1.SpaceSpec, path *field.Path) field.ErrorList {
	if spec.Priority.Preemption != v1alpha1.PreemptionOwnNodes || len(spec.Nodes.Selector) > 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("priority", "preemption"), spec.Priority.Preemption,
		"the space has no nodes of its own, and its pods would preempt those of others; set nodes.selector to nodes on which no pods of others run")}
}
