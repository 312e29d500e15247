// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// Pods is what [Accounts] is for all else. Pods are what spaces make most of: theirs
// holds nothing that is about other kinds.
func Pods() Policy {
	return Policy{
		Variables:   []admissionv1.Variable{listed("security", AnnotationPodSecurity), listed("resources", AnnotationPodResources), listed("bandwidth", AnnotationPodBandwidth), listed("identities", translate.AnnotationWorkloadIdentity), listed("adds", AnnotationHostAdds)},
		Validations: joined(whose(), podStatus(), placement(), podParts(), priorities(), podMetadata(), podShape(), podSecurity(), bandwidth()),
	}
}

// Fields of pods, as pod.ToHost writes them. A pod that is there can change
// in its image, its deadline, its size and its tolerations only.
const (
	handler = "{exec{command} httpGet{path port scheme httpHeaders[]{name value} protocol} tcpSocket{port} "
	probe   = handler + "grpc{port service mode} initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds:grace}"
	hook    = handler + "sleep{seconds}}"
	context = "seccompProfile{type:profile localhostProfile:host-profile} appArmorProfile{type:profile localhostProfile:host-profile} " +
		"seLinuxOptions{type:host-profile level:host-profile} windowsOptions{runAsUserName hostProcess:false} runAsUser runAsGroup runAsNonRoot "
	ownKey       = "{name:own key optional}"
	ownReference = "{name:own optional}"
	podField     = "fieldRef{apiVersion fieldPath} resourceFieldRef{containerName resource divisor}"
	containers   = "name image command args workingDir ports[]{name containerPort protocol} " +
		"envFrom[]{prefix configMapRef" + ownReference + " secretRef" + ownReference + "} " +
		"env[]{name value valueFrom{" + podField + " configMapKeyRef" + ownKey + " secretKeyRef" + ownKey + " fileKeyRef{volumeName path key optional}}} " +
		"resizePolicy[]{resourceName restartPolicy} restartPolicy restartPolicyRules[]{action exitCodes{operator values}} " +
		"volumeMounts[]{name readOnly recursiveReadOnly mountPath subPath mountPropagation subPathExpr bindMountOptions} volumeDevices[]{name devicePath} " +
		"livenessProbe" + probe + " readinessProbe" + probe + " startupProbe" + probe + " lifecycle{postStart" + hook + " preStop" + hook + " stopSignal} " +
		"terminationMessagePath terminationMessagePolicy imagePullPolicy stdin stdinOnce tty " +
		"securityContext{" + context + "capabilities{add drop} privileged:false readOnlyRootFilesystem allowPrivilegeEscalation procMount} "

	items     = "items[]{key path mode user} "
	podItems  = "items[]{path mode user " + podField + "} "
	podVolume = "name emptyDir{medium sizeLimit mode} image{reference pullPolicy} persistentVolumeClaim{claimName:own readOnly} " +
		"configMap{name:own defaultMode defaultUser optional " + items + "} secret{secretName:own defaultMode defaultUser optional " + items + "} downwardAPI{defaultMode defaultUser " + podItems + "} " +
		"projected{defaultMode defaultUser sources[]{configMap{name:own optional " + items + "} secret{name:own optional " + items + "} downwardAPI{" + podItems + "} " +
		"serviceAccountToken{audience expirationSeconds path}}} "

	term     = "{topologyKey labelSelector" + selector + "}"
	terms    = "{requiredDuringSchedulingIgnoredDuringExecution[]" + term + " preferredDuringSchedulingIgnoredDuringExecution[]{weight podAffinityTerm" + term + "}}"
	nodeTerm = "{matchExpressions[]{key operator values} matchFields[]{key operator values}}"
	podSpec  = "containers initContainers volumes restartPolicy terminationGracePeriodSeconds:grace activeDeadlineSeconds dnsPolicy dnsConfig{nameservers searches options[]{name value}} " +
		"nodeSelector serviceAccountName serviceAccount automountServiceAccountToken:false shareProcessNamespace imagePullSecrets[]{name} hostname hostnameOverride " +
		"securityContext{" + context + "supplementalGroups supplementalGroupsPolicy fsGroup fsGroupChangePolicy seLinuxChangePolicy sysctls[]{name value}} " +
		"affinity{podAffinity" + terms + " podAntiAffinity" + terms + " nodeAffinity{requiredDuringSchedulingIgnoredDuringExecution{nodeSelectorTerms[]" + nodeTerm + "} " +
		"preferredDuringSchedulingIgnoredDuringExecution[]{weight preference" + nodeTerm + "}}} " +
		"topologySpreadConstraints[]{maxSkew topologyKey whenUnsatisfiable minDomains labelSelector" + selector + "} " +
		"schedulerName:scheduler tolerations[]{key operator value effect tolerationSeconds} hostAliases[]{ip hostnames} " +
		"priorityClassName priority preemptionPolicy runtimeClassName overhead enableServiceLinks:false readinessGates[]{conditionType:gate} os{name} hostUsers resources{limits requests} " +
		"resourceClaims[]{name resourceClaimName:own}"
)

func podShape() []admissionv1.Validation {
	const created = "has(request.subResource) || object == null || oldObject != null || "
	message := OnlyFields + "pods: see docs/reference/host-access.md"
	return []admissionv1.Validation{
		Refuse(message, created+parse("apiVersion kind metadata spec status").only("dyn(object)", "")+" && "+parse(podSpec).only("dyn(object.spec)", "")),
		Refuse(message, created+"(object.spec.containers + object.spec.?initContainers.orValue([])).all(c, "+parse(containers+"resources{limits requests claims[]{name request}}").at("dyn(c)", "", 1)+")"),
		// One that is there can't change.
		Refuse(message, "!has(request.subResource) || request.subResource != 'ephemeralcontainers' || object.spec.?ephemeralContainers.orValue([]).all(c, "+
			"c in oldObject.spec.?ephemeralContainers.orValue([]) || "+parse(containers+"resources:empty targetContainerName").at("dyn(c)", "", 1)+")"),
		Refuse(fmt.Sprintf("a space's pods may have at most %d terms of podAffinity and podAntiAffinity, %d topologySpreadConstraints, and %d seconds as terminationGracePeriodSeconds",
			bounds.AffinityTerms.Bound().Default, bounds.SpreadConstraints.Bound().Default, bounds.GracePeriodSeconds.Bound().Default),
			"request.operation == 'DELETE' ? "+atMost("dyn(request).?options.?gracePeriodSeconds.orValue(0)", bounds.GracePeriodSeconds.Bound().Default)+" : "+created+
				atMost("size(object.spec.?topologySpreadConstraints.orValue([]))", bounds.SpreadConstraints.Bound().Default)+" && (!has(object.spec.affinity) || "+
				atMost("[object.spec.affinity.?podAffinity, object.spec.affinity.?podAntiAffinity].map(a, size(a.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])) + "+
					"size(a.?preferredDuringSchedulingIgnoredDuringExecution.orValue([]))).sum()", bounds.AffinityTerms.Bound().Default)+")"),
	}
}

// podStatus keeps an account to the answers to readiness gates: by the addresses in
// a pod's status, Berth knows whose a caller is.
func podStatus() []admissionv1.Validation {
	const elsewhere = "!has(request.subResource) || request.subResource != 'status' || "
	const conditions = ".status.?conditions.orValue([])"
	answer := "c.type.startsWith('" + pod.GatePrefix + "') && oldObject.spec.?readinessGates.orValue([]).exists(g, g.conditionType == c.type)"
	return []admissionv1.Validation{
		Refuse("a space's account may change only status.conditions in the status of a pod", elsewhere+
			"dyn(object.status).all(f, f == 'conditions' || f in oldObject.status && object.status[f] == oldObject.status[f]) && "+
			"dyn(oldObject.status).all(f, f == 'conditions' || f in object.status)"),
		Refuse("a space's account may set only those of a pod's status.conditions that answer Berth's readiness gates", elsewhere+
			"object"+conditions+".all(c, "+answer+" || c in oldObject"+conditions+") && "+
			"oldObject"+conditions+".all(c, "+answer+" || c in object"+conditions+")"),
	}
}
