// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/translate"
)

// SharedObjects restricts the SharedObjects that spaces' accounts write. The operator checks what is in them. But a finalizer would
// keep the namespace of the space from being deleted, and the host's garbage collector acts on owner references.
func SharedObjects() Policy {
	labels := "k == '" + translate.LabelManagedBy + "' && object.metadata.labels[k] == '" + translate.ManagedBy + "' || " +
		"k == '" + translate.LabelSpace + "' && '" + translate.HostNamespacePrefix + "' + object.metadata.labels[k] == request.namespace"
	return Policy{
		Variables:   []admissionv1.Variable{listed("adds", AnnotationHostAdds)},
		Validations: joined([]admissionv1.Validation{inOwnNamespace()}, onlyIn(labels, "false", "false", "false", true)),
	}
}
