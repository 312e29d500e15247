// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/berth-dev/berth/translate"
)

// serverFields are those of an object's metadata that an API server sets, and
// name and namespace, which [whose] is about.
const serverFields = "name namespace uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds managedFields selfLink labels annotations"

const onlyMetadata = "a space's objects may have only metadata that no controller of the host acts on: Berth's annotations, Berth's labels and those of pods, no finalizers, and no ownerReferences, unless the admin has allowed others"

// metadata is about all objects but pods. The labels that translate writes are
// Berth's own, and an endpoint slice's.
func metadata() []admissionv1.Validation {
	const slice = "request.resource.resource == 'endpointslices' && "
	labels := ownLabels() + " || " + slice + "(k == '" + discoveryv1.LabelManagedBy + "' && object.metadata.labels[k] == 'syncer." + translate.Domain + "' || " +
		"k == '" + discoveryv1.LabelServiceName + "' && (" + rule("own", "object.metadata.labels[k]") + " || object.metadata.labels[k] == '" + translate.DNSServiceName + "'))"
	// The one that is allowed on services GKE itself puts there as they are made.
	annotations := "k.startsWith('" + translate.Domain + "/') || request.resource.resource == 'services' && k == 'cloud.google.com/neg' || " +
		"request.resource.resource == 'ingresses' && " + says("ingress", "k") + " || request.resource.resource == 'serviceaccounts' && " + identityAnnotation()
	// Upstream's admission protects claims by a finalizer from the start.
	finalizers := "request.resource.resource == 'persistentvolumeclaims' && f == 'kubernetes.io/pvc-protection'"
	// The tokens of a pod end with the pod.
	owners := "f == 'ownerReferences' && request.resource.resource == 'secrets' && size(object.metadata.ownerReferences) == 1 && " +
		"object.metadata.ownerReferences.all(o, o.apiVersion == 'v1' && o.kind == 'Pod' && " + rule("own", "o.name") + " && !o.?blockOwnerDeletion.orValue(false))"
	return onlyIn(labels, annotations, finalizers, owners, true)
}

// podMetadata is about pods. Their labels are the tenant's: a space's services and
// policies select by them.
func podMetadata() []admissionv1.Validation {
	labels := "k.matches('^(label[.])?" + strings.ReplaceAll(translate.Domain, ".", "[.]") + "/') || k == '" + translate.LabelManagedBy + "' && object.metadata.labels[k] == '" + translate.ManagedBy + "' || " +
		"!k.matches('" + reservedLabels() + "') || k.startsWith('app.kubernetes.io/') && !(k in " + quoted(wholeLabels()...) + ") || " +
		identityLabel()
	annotations := "k.startsWith('" + translate.Domain + "/') || k.startsWith('label." + translate.Domain + "/') || k.startsWith('annotation." + translate.Domain + "/') || " +
		bandwidthKeys() + " || k == 'kubernetes.io/limit-ranger'" // upstream's admission says by it what it filled in
	return onlyIn(labels, annotations, "false", "false", true)
}

// ownLabels are an expression about a key k of a label that is Berth's.
func ownLabels() string {
	return "k.startsWith('" + translate.Domain + "/') || k == '" + translate.LabelManagedBy + "' && object.metadata.labels[k] == '" + translate.ManagedBy + "'"
}

// reservedLabels is an expression in RE2 for the keys of labels that a tenant's pods do
// not have under these names: see translate.DefaultReservedLabels.
func reservedLabels() string {
	var begin, domains []string
	for _, entry := range append(translate.DefaultReservedLabels(), translate.Domain) {
		switch quoted := strings.ReplaceAll(entry, ".", "[.]"); {
		case strings.HasSuffix(entry, "."):
			begin = append(begin, quoted)
		case strings.Contains(entry, "/"):
			begin = append(begin, quoted+"$")
		default:
			domains = append(domains, quoted)
		}
	}
	return "^(" + strings.Join(begin, "|") + "|([^/]*[.])?(" + strings.Join(domains, "|") + ")/)"
}

// wholeLabels are the reserved keys that are named in full.
func wholeLabels() (keys []string) {
	for _, entry := range translate.DefaultReservedLabels() {
		if strings.Contains(entry, "/") {
			keys = append(keys, entry)
		}
	}
	return keys
}

// onlyIn allows of labels and annotations those keys k, and of finalizers those
// names f, that are as they were, that expressions allow, or that the host's admin
// says.
func onlyIn(labels, annotations, finalizers, fields string, adds bool) []admissionv1.Validation {
	says := func(list, entry string) string {
		if !adds { // an object in no namespace has none with an annotation
			return "false"
		}
		return says(list, entry)
	}
	keys := func(field, entry, allowed string) string {
		of, old := "object.metadata."+field, "oldObject.metadata.?"+field+".orValue({})"
		return "(!has(" + of + ") || dyn(" + of + ").all(k, " + allowed + " || oldObject != null && k in " + old + " && " + of + "[k] == oldObject.metadata." + field + "[k] || " +
			says("adds", "('"+entry+":' + k)") + "))"
	}
	protected := "(!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, " + finalizers + " || oldObject != null && f in oldObject.metadata.?finalizers.orValue([]) || " +
		says("adds", "('finalizer:' + f)") + "))"
	// Who takes a finalizer away keeps the host from cleaning up.
	stays := "(oldObject == null || oldObject.metadata.?finalizers.orValue([]).all(f, f in object.metadata.?finalizers.orValue([])))"
	return []admissionv1.Validation{Refuse(onlyMetadata, "object == null || "+
		parse(serverFields).only("dyn(object.metadata)", "f == 'finalizers' || "+fields+" || "+keptIn("object.metadata"))+" && "+
		keys("labels", "label", labels)+" && "+keys("annotations", "annotation", annotations)+" && "+protected+" && "+stays)}
}
