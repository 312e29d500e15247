// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
)

// Runtimes is about pods that name a runtime class, whose node selector and
// tolerations a host adds to theirs as they are created. It is evaluated once for
// each of the host's runtime classes, which are its parameters: a pod may have what
// its own class adds, and nothing else that [Pods] refuses of pods without a class.
func Runtimes() Policy {
	said := "namespaceObject.metadata.?annotations['" + translate.AnnotationPlacement + "'].orValue('').split(',')"
	return Policy{Variables: []admissionv1.Variable{listed("resources", AnnotationPodResources)}, Validations: []admissionv1.Validation{
		Refuse("a space's pods may choose only nodes of the space or of their runtime class: remove other entries of spec.nodeSelector and spec.tolerations",
			"oldObject != null || object == null || params.metadata.name != object.spec.runtimeClassName || "+adminsChoose()+" || "+
				"object.spec.?nodeSelector.orValue({}).all(k, k in "+said+" || "+chosen("k", said)+" || "+
				"params.?scheduling.?nodeSelector.orValue({})[?k].orValue('') == object.spec.nodeSelector[k]) && "+
				"object.spec.?tolerations.orValue([]).all(t, t.?key.orValue('') in "+failingNodes()+" || "+ofRequested("t")+" || "+tolerated(said)+" || t in params.?scheduling.?tolerations.orValue([]))"),
	}}
}

// NamesRuntime matches pods that name a runtime class.
func NamesRuntime() admissionv1.MatchCondition {
	return admissionv1.MatchCondition{Name: "runtime", Expression: "object != null && has(object.spec.runtimeClassName)"}
}
