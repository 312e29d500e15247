// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/translate"
)

// placement keeps an account's pods from nodes, as translate's checks of placement
// have it. [translate.Placement] says which nodes they may choose, and which they
// must.
//
// Some of it others may write for Berth, and who it was can't be told: admission
// plugins do in namespaces with their annotations, see docs/reference/host-access.md. What a
// runtime class adds is [Runtimes]'.
func placement() []admissionv1.Validation {
	const created = "oldObject != null || "
	nodes := quoted(corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion)
	said := "namespaceObject.metadata.?annotations['" + translate.AnnotationPlacement + "'].orValue('').split(',')"
	const selector = "object.spec.?nodeSelector.orValue({})"
	selected := "(has(object.spec.runtimeClassName) || " +
		selector + ".all(k, k in " + said + " || " + chosen("k", said) + ") && " +
		"object.spec.?tolerations.orValue([]).all(t, t.?key.orValue('') in " + failingNodes() + " || " + ofRequested("t") + " || " + tolerated(said) + ")) && " +
		"(!object.spec.?affinity.?nodeAffinity.hasValue() || " +
		"(object.spec.affinity.nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([]) + " +
		"object.spec.affinity.nodeAffinity.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.preference))" +
		".all(t, t.?matchFields.orValue([]).all(f, 'fields:' + f.key in " + said + " && f.operator == 'In') && " +
		"t.?matchExpressions.orValue([]).all(e, e.key in " + said + " || e.key == '" + corev1.LabelOSStable + "' && e.operator == 'In' && e.?values.orValue([]) == ['" + string(corev1.Linux) + "'])))"
	same := "oldObject != null && ['nodeSelector', 'tolerations', 'affinity'].all(f, dyn(object.spec)[?f] == dyn(oldObject.spec)[?f])"
	near := "!has(object.spec.affinity) || [object.spec.affinity.?podAffinity, object.spec.affinity.?podAntiAffinity].all(a, " +
		"(a.?requiredDuringSchedulingIgnoredDuringExecution.orValue([]) + a.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]).map(p, p.podAffinityTerm))" +
		".all(t, t.topologyKey in " + nodes + " && !has(t.namespaces) && !has(t.namespaceSelector)))"
	spread := "object.spec.?topologySpreadConstraints.orValue([]).all(c, c.topologyKey in " + nodes + ")"
	return []admissionv1.Validation{
		Refuse("a space's pods may not choose nodes: spec may have no nodeName, no nodeSelector, node affinity or topologyKey but of the space's nodes, and no tolerations but of failing nodes and of the space's nodes",
			"has(request.subResource) || object == null || "+
				"("+selected+" || "+same+" || "+adminsChoose()+") && "+
				"("+created+"!has(object.spec.nodeName) && "+spread+" && ("+near+"))"),
		Refuse("a space's pods may run on the space's nodes only: spec.nodeSelector must have the labels in the annotation "+translate.AnnotationPlacement+" of the namespace",
			"has(request.subResource) || "+created+said+".all(l, !l.contains('=') || l in "+selector+".map(k, k + '=' + object.spec.nodeSelector[k]))"),
	}
}

// chosen reports whether the entry of key k in a pod's node selector is among said, the list of [translate.Placement.String], or selects
// nodes that run Linux, as pods of all spaces may.
func chosen(k, said string) string {
	return k + " + '=' + object.spec.nodeSelector[" + k + "] in " + said + " + ['" + corev1.LabelOSStable + "=" + string(corev1.Linux) + "']"
}

// tolerated reports whether said, the list of [translate.Placement.String], has the toleration t.
func tolerated(said string) string {
	return "'toleration:' + t.?key.orValue('') + ':' + t.?operator.orValue('Equal') + ':' + t.?value.orValue('') + ':' + t.?effect.orValue('') in " + said + " && !has(t.tolerationSeconds)"
}

// priorities keep an account's pods from preempting pods of other spaces, and from being preempted by them, as
// [translate.Priorities] has it, and from the classes that aren't for the space.
func priorities() []admissionv1.Validation {
	const created = "has(request.subResource) || oldObject != null || object == null || "
	said := "namespaceObject.metadata.?annotations['" + translate.AnnotationPriorities + "'].orValue('').split(',')"
	return []admissionv1.Validation{
		Refuse("a space's pods may not preempt pods of other spaces, or be preempted by them: spec.priorityClassName must be empty, or name a class with a value of 0 or more, and with the preemptionPolicy Never if it is more",
			created+"object.spec.?priority.orValue(0) == 0 || object.spec.priority > 0 && object.spec.?preemptionPolicy.orValue('') == 'Never' || 'preempts:own-nodes' in "+said),
		Refuse("a space's pods may have only classes of the space: spec.priorityClassName must be empty, one in the annotation "+translate.AnnotationPriorities+" of the namespace, or one that begins with the name of the space and a dot",
			created+"object.spec.?priorityClassName.orValue('') == '' || "+said+".all(c, c == '' || c.contains(':')) || object.spec.priorityClassName in "+said+
				" || object.spec.priorityClassName.startsWith(namespaceObject.metadata.labels['"+translate.LabelSpace+"'] + '"+translate.ClusterSeparator+"')"),
	}
}

// failingNodes are the keys of taints that pods may tolerate.
func failingNodes() string {
	return quoted(corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeMemoryPressure)
}

// ofRequested reports whether a toleration is of a resource that the pod requests. By
// convention, nodes that have it have a taint of its name.
func ofRequested(toleration string) string {
	key := toleration + ".?key.orValue('')"
	return says("resources", key) + " && (object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, " + key + " in c.?resources.?requests.orValue({}))"
}

// adminsChoose reports whether other admission chooses the nodes of the space's pods.
func adminsChoose() string {
	return "namespaceObject.metadata.?annotations.orValue({}).exists(k, k in " +
		quoted("scheduler.alpha.kubernetes.io/node-selector", "scheduler.alpha.kubernetes.io/defaultTolerations", "scheduler.alpha.kubernetes.io/tolerationsWhitelist") + ")"
}

// podParts keeps pods from running as more than pods of the space, and from what
// belongs to nodes.
func podParts() []admissionv1.Validation {
	const created = "has(request.subResource) || oldObject != null || object == null || "
	const token = "has(s.serviceAccountToken) && s.serviceAccountToken.?audience.orValue('') != '' && object.spec.?serviceAccountName.orValue('').contains('--')"
	counted := ".all(r, r in ['cpu', 'memory', 'ephemeral-storage'] || " + says("resources", "r") + ")"
	return []admissionv1.Validation{
		Refuse("a space's pods may have neither a spec.priorityClassName that begins with system- nor the spec.serviceAccountName of Berth",
			created+"!object.spec.?priorityClassName.orValue('').startsWith('system-') && "+
				"(object.spec.?serviceAccountName.orValue('default') == 'default' || object.spec.serviceAccountName.contains('--'))"),
		Refuse("a space's pods may mount only configMap, secret, emptyDir, downwardAPI, projected, persistentVolumeClaim and image volumes of the space, and no token for the host's API",
			created+"object.spec.?volumes.orValue([]).all(v, "+parse(podVolume).at("dyn(v)", "", 1)+" && "+
				"v.?projected.?sources.orValue([]).all(s, !has(s.serviceAccountToken) || "+token+"))"),
		// Of what is not cpu or memory, requests and limits are the same.
		Refuse("a space's pods may request only cpu, memory, ephemeral-storage, and what the quota of the space names, such as requests.example.com/gpu, and no resourceClaims unless it names a class of devices",
			created+"(!has(object.spec.resourceClaims) || variables.resources.exists(r, r.startsWith('"+translate.CountedClass+"'))) && object.spec.?resources.?requests.orValue({})"+counted+" && "+
				"(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, c.?resources.?requests.orValue({})"+counted+")"),
	}
}
