// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/workloadidentity"
)

// identityKeys is an expression for the keys of annotations that the marker of a service account lists.
func identityKeys(object string) string {
	return object + ".metadata.?annotations['" + translate.AnnotationWorkloadIdentity + "'].orValue('').split(',')"
}

// identities keep the marker of a service account complete: Berth removes what it lists when that is no longer allowed, and takes anything
// else for the host's admin's.
func identities() []admissionv1.Validation {
	return []admissionv1.Validation{Refuse("the annotation "+translate.AnnotationWorkloadIdentity+" of a space's service account must list the annotations of an identity that it listed before, as long as they are there",
		"object == null || oldObject == null || request.resource.resource != 'serviceaccounts' || "+
			identityKeys("oldObject")+".all(k, !(k in object.metadata.?annotations.orValue({})) || k in "+identityKeys("object")+")")}
}

// identityAnnotation is an expression about a key k of an annotation of service accounts: by these, a cloud gives pods an identity. The
// entries of the list are as [workloadidentity.Rules.Strings] has them.
func identityAnnotation() string {
	const value = "object.metadata.annotations[k]"
	// Most entries are about other keys, and what compares the whole value costs more.
	return "k in " + identityKeys("object") + " && " + atMost("size("+value+")", workloadidentity.MaxValue) + " && " + value + ".matches('" + workloadidentity.ValuePattern + "') && " +
		"variables.identities.exists(e, e.startsWith(k + '=') && (e == k + '=' + " + value + " || " +
		"e.endsWith('*') && !" + value + ".contains('" + workloadidentity.Upward + "') && (k + '=' + " + value + ").startsWith(e.substring(0, size(e) - 1))))"
}

// identityLabel is an expression about a key k of a label of pods that a webhook of the cloud asks for.
func identityLabel() string {
	return says("identities", "('"+workloadidentity.LabelPrefix+"' + k + '=' + object.metadata.labels[k])")
}
