// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// PodBandwidth are the maximums that [AnnotationPodBandwidth] lists for a space, each as KEY=VALUE of an annotation of
// pods.
func PodBandwidth(b translate.PodBandwidth) (list []string) {
	if most := b.Egress.Max; most != nil {
		list = append(list, pod.AnnotationEgressBandwidth+"="+most.String())
	}
	if most := b.Ingress.Max; most != nil {
		list = append(list, pod.AnnotationIngressBandwidth+"="+most.String())
	}
	return list
}

// bandwidth keeps pods within these maximums, also by an update of their status, which may change annotations. A pod that was there
// before the maximum may stay as it is.
func bandwidth() []admissionv1.Validation {
	const key, value = "b.split('=')[0]", "object.metadata.?annotations[?b.split('=')[0]].orValue('')"
	return []admissionv1.Validation{
		Refuse("a space's pods must have the annotations "+pod.AnnotationIngressBandwidth+" and "+pod.AnnotationEgressBandwidth+" within the maximums in the annotation "+AnnotationPodBandwidth+" of the namespace",
			"object == null || variables.bandwidth.all(b, b == '' || "+
				"oldObject != null && object.metadata.?annotations[?"+key+"] == oldObject.metadata.?annotations[?"+key+"] || "+
				"isQuantity("+value+") && !quantity("+value+").isGreaterThan(quantity(b.split('=')[1])))"),
	}
}

// bandwidthKeys is an expression about a key k of an annotation of pods.
func bandwidthKeys() string {
	return "k in " + quoted(pod.AnnotationIngressBandwidth, pod.AnnotationEgressBandwidth) + " && isQuantity(object.metadata.annotations[k])"
}
