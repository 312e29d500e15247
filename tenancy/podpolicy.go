// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

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
	const elsewhere = "!has(request.subResource) || request.subResource != 'status' || "
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

// choices keeps an account's pods from nodes, as translate's checks of placement
// and of volumes have it, and from running as more than pods of the space.
//
// [translate.Placement] says which nodes they may choose, and which they must.
//
// Some of it others may write for Berth, and who it was can't be told: a runtime
// class of the host's adds its node selector and tolerations, and so do admission
// plugins in namespaces with their annotations, see docs/install.md.
func choices() []admissionv1.Validation {
	const created = "oldObject != null || "
	nodes := quoted(corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion)
	failing := quoted(corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure)
	said := "namespaceObject.metadata.?annotations['" + translate.AnnotationPlacement + "'].orValue('').split(',')"
	const selector = "object.spec.?nodeSelector.orValue({})"
	selected := "(has(object.spec.runtimeClassName) || " +
		selector + ".all(k, k in " + said + " || k + '=' + object.spec.nodeSelector[k] in " + said + ") && " +
		"object.spec.?tolerations.orValue([]).all(t, t.?key.orValue('') in " + failing + ")) && " +
		"(!object.spec.?affinity.?nodeAffinity.hasValue() || " +
		"(object.spec.affinity.nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]) + " +
		"object.spec.affinity.nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.preference))" +
		".all(t, t.?matchFields.orValue([]).all(f, 'fields:' + f.key in " + said + " && f.operator == 'In') && " +
		"t.?matchExpressions.orValue([]).all(e, e.key in " + said + ")))"
	same := "oldObject != null && ['nodeSelector', 'tolerations', 'affinity'].all(f, dyn(object.spec)[?f] == dyn(oldObject.spec)[?f])"
	admins := quoted("scheduler.alpha.kubernetes.io/node-selector", "scheduler.alpha.kubernetes.io/defaultTolerations", "scheduler.alpha.kubernetes.io/tolerationsWhitelist")
	near := "!has(object.spec.affinity) || [object.spec.affinity.?podAffinity, object.spec.affinity.?podAntiAffinity].all(a, " +
		"(a.?requiredDuringSchedulingIgnoredDuringExecution.orValue([]) + a.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.podAffinityTerm))" +
		".all(t, t.topologyKey in " + nodes + " && !has(t.namespaces) && !has(t.namespaceSelector)))"
	spread := "object.spec.?topologySpreadConstraints.orValue([]).all(c, c.topologyKey in " + nodes + ")"

	const token = "has(s.serviceAccountToken) && s.serviceAccountToken.?audience.orValue('') != '' && object.spec.?serviceAccountName.orValue('').contains('--')"
	const shared = ".all(r, r in ['cpu', 'memory', 'ephemeral-storage'])"
	return []admissionv1.Validation{
		refuse("a space's pods may choose neither their node nor the kind of it: no name, selector, affinity or topology of nodes, no toleration but of failing ones",
			"has(request.subResource) || object == null || "+
				"("+selected+" || "+same+" || namespaceObject.metadata.?annotations.orValue({}).exists(k, k in "+admins+")) && "+
				"("+created+"!has(object.spec.nodeName) && "+spread+" && ("+near+"))"),
		refuse("a space's pods run on the nodes of the space only: those of the annotation "+translate.AnnotationPlacement+" of its namespace",
			"has(request.subResource) || "+created+said+".all(l, !l.contains('=') || l in "+selector+".map(k, k + '=' + object.spec.nodeSelector[k]))"),
		refuse("a space's pods may not have a priority of the system's, nor run as Berth",
			created+"!object.spec.?priorityClassName.orValue('').startsWith('system-') && "+
				"(object.spec.?serviceAccountName.orValue('default') == 'default' || object.spec.serviceAccountName.contains('--'))"),
		refuse("a space's pods may mount only configMap, secret, emptyDir, downwardAPI, projected, persistentVolumeClaim and image volumes, and no token of the host's API",
			created+"object.spec.?volumes.orValue([]).all(v, has(v.configMap) || has(v.secret) || has(v.emptyDir) || has(v.downwardAPI) || has(v.persistentVolumeClaim) || has(v.image) || "+
				"has(v.projected) && v.projected.?sources.orValue([]).all(s, has(s.secret) || has(s.configMap) || has(s.downwardAPI) || "+token+"))"),
		// Of what is not cpu or memory, requests and limits are the same.
		refuse("a space's pods may ask for cpu, memory and ephemeral-storage only, and for no device",
			created+"!has(object.spec.resourceClaims) && object.spec.?resources.?requests.orValue({})"+shared+" && "+
				"(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, c.?resources.?requests.orValue({})"+shared+")"),
	}
}
