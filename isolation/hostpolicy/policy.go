// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// Policy is what a ValidatingAdmissionPolicy holds spaces' accounts to.
type Policy struct {
	Variables   []admissionv1.Variable
	Validations []admissionv1.Validation
}

// Annotations of a space's namespace on the host that the policies read. Berth
// writes them, but for [AnnotationHostAdds].
const (
	// AnnotationIngress lists the keys of annotations that go along with the space's
	// ingresses.
	AnnotationIngress = translate.Domain + "/ingress-annotations"
	// AnnotationClosed lists address ranges, in CIDR form, that are closed to the
	// space beside those that are closed to all.
	AnnotationClosed = translate.Domain + "/closed"
	// AnnotationPodSecurity lists what [PodSecurity] returns.
	AnnotationPodSecurity = translate.Domain + "/pod-security"
	// AnnotationPodResources lists what the quota of the space counts, see
	// [translate.Counted.Strings].
	AnnotationPodResources = translate.Domain + "/pod-resources"
	// AnnotationPodBandwidth lists what [PodBandwidth] returns.
	AnnotationPodBandwidth = translate.Domain + "/pod-bandwidth"
	// AnnotationHostAdds is for the host's admin. It lists what other admission adds
	// to the space's objects as they are created: annotation:KEY, label:KEY,
	// finalizer:NAME, and loadBalancerClass:NAME.
	AnnotationHostAdds = translate.Domain + "/host-adds"
)

// NotOurs begins what a host answers to an account that would write what is not
// made for the space's objects.
const NotOurs = "a space's account may write only copies of the space's objects"

// FromAccounts matches requests of spaces' accounts. Neither a namespace nor the
// name of a service account holds a colon.
func FromAccounts() []admissionv1.MatchCondition {
	return []admissionv1.MatchCondition{{
		Name:       "account",
		Expression: "request.userInfo.username.startsWith('system:serviceaccount:') && request.userInfo.username.endsWith(':" + syncer.ServiceAccount + "')",
	}}
}

// whose keeps an account to what a syncer makes: never an isolation object, the
// accounts, or an object of the host's own. No name of these holds two dashes, and
// all names that are translated do; own are others that Berth makes.
func whose(own ...string) []admissionv1.Validation { return whoseOr("", own...) }

// whoseOr is [whose], unless an expression holds, if there is one.
func whoseOr(expression string, own ...string) []admissionv1.Validation {
	ours := func(o string) string {
		name := o + ".metadata.name.contains('--')"
		if len(own) > 0 {
			name = "(" + name + " || (request.resource.resource + '/' + " + o + ".metadata.name) in " + quoted(own...) + ")"
		}
		return "(" + o + " == null || '" + translate.HostNamespacePrefix + "' + " + o + ".metadata.?labels['" + translate.LabelSpace + "'].orValue('') == request.namespace && " + name + ")"
	}
	if expression != "" {
		expression += " || "
	}
	return []admissionv1.Validation{
		inOwnNamespace(),
		Refuse(NotOurs+": they have the label "+translate.LabelSpace+
			", and are neither isolation objects nor service accounts of Berth", expression+ours("object")+" && "+ours("oldObject")),
	}
}

func inOwnNamespace() admissionv1.Validation {
	return Refuse("a space's account may write only in the space's namespace",
		"request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':"+syncer.ServiceAccount+"'")
}

// Refuse is a validation with a message for what does not meet an expression.
func Refuse(message, unless string) admissionv1.Validation {
	return admissionv1.Validation{Expression: unless, Message: message, Reason: ptr.To(metav1.StatusReasonForbidden)}
}

// about is an expression that asks something of what is written of one resource.
func about(resource, expression string) string {
	return "request.resource.resource != '" + resource + "' || object == null || (" + expression + ")"
}

// kept is an expression that allows a field only as it is: to whoever else wrote
// it, if it is there at all.
func kept(field string) string {
	return "(!has(object." + field + ") || oldObject != null && has(oldObject." + field + ") && object." + field + " == oldObject." + field + ")"
}

// atMost is an expression that bounds a number, which may be an expression.
func atMost(count string, limit int64) string { return fmt.Sprintf("%s <= %d", count, limit) }

// quoted is a list of strings in CEL.
func quoted(all ...string) string { return "['" + strings.Join(all, "', '") + "']" }

// says is an expression that reports whether an annotation of the namespace, of
// which there is a variable, lists an entry.
func says(variable, entry string) string { return entry + " in variables." + variable }

// listed is a variable for the entries of an annotation of the space's namespace.
func listed(name, annotation string) admissionv1.Variable {
	return admissionv1.Variable{Name: name, Expression: "namespaceObject.metadata.?annotations['" + annotation + "'].orValue('').split(',')"}
}

func joined(all ...[]admissionv1.Validation) []admissionv1.Validation { return slices.Concat(all...) }
