// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
)

// PodPolicy is what [AccountPolicy] is for all else. Pods are what spaces make
// most of: theirs holds nothing that is about other kinds.
func PodPolicy() admissionv1.ValidatingAdmissionPolicySpec {
	return accountPolicy(ofPods, whose(), status(), choices())
}

// ofPods reports whether a resource is pods, or under them.
func ofPods(resource string) bool { return resource == "pods" || strings.HasPrefix(resource, "pods/") }

// status keeps an account to the answers to readiness gates: by the addresses in
// a pod's status, Berth knows whose a caller is.
func status() []admissionv1.Validation {
	const elsewhere = "request.?subResource.orValue('') != 'status' || "
	const conditions = ".status.?conditions.orValue([])"
	answer := "c.type.startsWith('" + translate.GatePrefix + "') && oldObject.spec.?readinessGates.orValue([]).exists(g, g.conditionType == c.type)"
	return []admissionv1.Validation{
		refuse("a space's account may change only conditions in the status of a pod", elsewhere+
			"dyn(object.status).all(f, f == 'conditions' || f in oldObject.status && object.status[f] == oldObject.status[f]) && "+
			"dyn(oldObject.status).all(f, f == 'conditions' || f in object.status)"),
		refuse("a space's account may set only the conditions of readiness gates that are Berth's", elsewhere+
			"object"+conditions+".all(c, "+answer+" || c in oldObject"+conditions+") && "+
			"oldObject"+conditions+".all(c, "+answer+" || c in object"+conditions+")"),
	}
}

// choices keeps an account's pods from nodes, and from running as more than pods
// of the space.
func choices() []admissionv1.Validation {
	return []admissionv1.Validation{
		refuse("a space's pods may choose neither their node nor a priority of the system's, nor run as Berth",
			"request.operation != 'CREATE' || !has(object.spec.nodeName) && "+
				"!object.spec.?priorityClassName.orValue('').startsWith('system-') && "+
				"(object.spec.?serviceAccountName.orValue('default') == 'default' || object.spec.serviceAccountName.contains('--'))"),
	}
}
