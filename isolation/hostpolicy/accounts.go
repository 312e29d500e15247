// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// Accounts is what the host holds the spaces' accounts to beyond their rights:
// RBAC grants kinds, and can't tell a tenant's network policy from one that
// isolates the space. Pods are [Pods]'s.
func Accounts() Policy {
	return Policy{
		Variables: append(closedRanges(), listed("ingress", AnnotationIngress), listed("identities", translate.AnnotationWorkloadIdentity), listed("resources", AnnotationPodResources), listed("adds", AnnotationHostAdds)),
		Validations: joined(
			whoseOr(returned(), "services/"+translate.DNSServiceName, "endpointslices/"+translate.DNSServiceName, "endpointslices/"+translate.APIEndpointsName),
			networkPolicies(), services(), endpointSlices(), ingresses(), gateways(), configs(), claims(), deviceClaims(), budgets(),
			metadata(), identities(), shapes(),
		),
	}
}

// returned is about the deletion of a Secret that returned to the space. It has no label, as a controller of the host made it.
func returned() string {
	return "object == null && request.resource.resource == 'secrets' && ('" + translate.HostNamespacePrefix + "' + oldObject.metadata.name).startsWith(request.namespace + '" +
		declaration.ReturnedMark + "')"
}

const selector = "{matchLabels matchExpressions[]{key operator values}}"

// shapes has each resource consist of the fields that translate writes. Fields of a
// spec that somebody else wrote may stay.
func shapes() (all []admissionv1.Validation) {
	const peers = "[]{podSelector" + selector + " namespaceSelector" + selector + " ipBlock{cidr except}}"
	const policyPorts = "ports[]{protocol port endPort}"
	for _, r := range []struct{ resource, fields, spec string }{
		{"configmaps", "data binaryData immutable", ""},
		{"secrets", "data immutable type:secret-type", ""},
		{"serviceaccounts", "automountServiceAccountToken:false", ""},
		{"services", "", `type ports[]{name protocol appProtocol port targetPort nodePort} selector clusterIP clusterIPs ipFamilies ipFamilyPolicy externalName
			sessionAffinity sessionAffinityConfig{clientIP{timeoutSeconds}} publishNotReadyAddresses internalTrafficPolicy externalTrafficPolicy
			healthCheckNodePort loadBalancerSourceRanges trafficDistribution allocateLoadBalancerNodePorts loadBalancerClass`},
		{"endpointslices", "addressType endpoints[]{addresses conditions{ready serving terminating} hostname} ports[]{name protocol port appProtocol}", ""},
		{"persistentvolumeclaims", "", `accessModes resources{requests limits} storageClassName volumeMode volumeName
			dataSource{apiGroup kind name:own} dataSourceRef{apiGroup kind name:own}`},
		{"networkpolicies", "", "podSelector" + selector + " policyTypes ingress[]{" + policyPorts + " from" + peers + "} egress[]{" + policyPorts + " to" + peers + "}"},
		{"ingresses", "", `ingressClassName rules[]{host http{paths[]{path:plain-path pathType backend{service{name:own port{name number}}}}}} tls[]{hosts secretName:own}`},
		{"poddisruptionbudgets", "", "minAvailable selector{matchLabels} unhealthyPodEvictionPolicy"},
		{"resourceclaims", "", "devices{requests[]{name exactly{" + deviceRequest + "} firstAvailable[]{name " + deviceRequest + "}} constraints[]{requests matchAttribute distinctAttribute}}"},
		{"volumesnapshots", "", "source{persistentVolumeClaimName:own} volumeSnapshotClassName"},
		{"gateways", "", `gatewayClassName listeners[]{name hostname port protocol tls{mode certificateRefs[]{group kind name:own}}
			allowedRoutes{namespaces{from} kinds[]{group kind}}} allowedListeners{namespaces{from:none}}`}, // newer definitions fill in the last
		{"httproutes", "", routeFields},
	} {
		top := "apiVersion kind metadata status " + r.fields
		if r.spec != "" {
			top += " spec"
		}
		holds := parse(top).only("dyn(object)", "oldObject != null && f in dyn(oldObject) && dyn(oldObject)[f] == dyn(object)[f]")
		if r.spec != "" {
			holds += " && " + parse(r.spec).only("dyn(object.spec)", keptIn("object.spec"))
		}
		all = append(all, Refuse(OnlyFields+r.resource+": "+"see docs/reference/host-access.md", about(r.resource, holds)))
	}
	return all
}

// OnlyFields begins what a host answers to an account that would write a field, or a
// value, that Berth never writes.
const OnlyFields = "a space's account may write only the fields that Berth needs of "

const (
	header       = "set[]{name value} add[]{name value} remove"
	modifiedPath = "path{type replaceFullPath replacePrefixMatch}"
	toService    = "group kind name:own port"
	routeFilters = "filters[]{type requestHeaderModifier{" + header + "} responseHeaderModifier{" + header + "} " +
		"requestMirror{backendRef{" + toService + "} percent fraction{numerator denominator}} " +
		"requestRedirect{scheme hostname " + modifiedPath + " port statusCode} urlRewrite{hostname " + modifiedPath + "}}"
	routeFields = "hostnames parentRefs[]{group kind name:own sectionName port} rules[]{name " +
		"matches[]{path{type value} headers[]{type name value} queryParams[]{type name value} method} " + routeFilters + " " +
		"backendRefs[]{" + toService + " weight " + routeFilters + "} timeouts{request backendRequest} retry{codes attempts backoff}}"
)
