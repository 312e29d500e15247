// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testfields

import (
	"maps"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Reasons why Berth writes a field.
const (
	identity = "the identity of the object in its space"
	tenants  = "the tenant's own, which is about the space alone"
	server   = "set by the API server, whatever is sent"
	hosts    = "the host's allocation, asked for by value where the space has it"
	names    = "the name of the space's object on the host, which holds two dashes"
	counted  = "what the quota of the space counts"
	bounded  = "the tenant's own, up to a bound"
	filled   = "filled in by the host's admission, which refuses a value that it would not fill in"
)

// Writes is the table of what Berth writes on a host.
func Writes() Table {
	out := table(
		of[metav1.ObjectMeta](identity, "name namespace", whole(identity, "labels annotations"),
			whole(server, "uid resourceVersion generation creationTimestamp deletionTimestamp deletionGracePeriodSeconds managedFields selfLink"),
			only("ownerReferences", "a pod's tokens end with the pod, and classes with the space", "secrets", "priorityclasses", "storageclasses")),
		of[metav1.LabelSelector](tenants, "matchLabels matchExpressions"),
		of[metav1.LabelSelectorRequirement](tenants, "key operator values"),

		of[corev1.ConfigMap](tenants, "metadata data binaryData immutable"),
		of[corev1.Secret](tenants, "metadata data immutable", but("type", "kubernetes.io/service-account-token", "a type that means nothing to the host's controllers"),
			whole("the API server joins it with data", "stringData")),
		of[corev1.ServiceAccount](tenants, "metadata", but("automountServiceAccountToken", true, "always false")),
		of[corev1.Service](tenants, "metadata spec", whole(server, "status")),
		of[corev1.ServiceSpec](tenants, "type ports sessionAffinity sessionAffinityConfig publishNotReadyAddresses internalTrafficPolicy externalTrafficPolicy "+
			"loadBalancerSourceRanges trafficDistribution allocateLoadBalancerNodePorts externalName ipFamilies ipFamilyPolicy",
			whole(hosts, "clusterIP clusterIPs healthCheckNodePort"), but("selector", map[string]string{"app": "web"}, "narrowed to the space's pods")),
		of[corev1.ServicePort](tenants, "name protocol appProtocol port targetPort nodePort"),
		of[corev1.SessionAffinityConfig](tenants, "clientIP"),
		of[corev1.ClientIPConfig](tenants, "timeoutSeconds"),
		of[discoveryv1.EndpointSlice](tenants, "metadata addressType endpoints ports"),
		of[discoveryv1.Endpoint](tenants, "conditions hostname", but("addresses", []string{"168.63.129.16"}, "none that is special on the host's network")),
		of[discoveryv1.EndpointConditions](tenants, "ready serving terminating"),
		of[discoveryv1.EndpointPort](tenants, "name protocol port appProtocol"),

		of[corev1.PersistentVolumeClaim](tenants, "metadata spec", whole(server, "status")),
		of[corev1.PersistentVolumeClaimSpec](tenants, "accessModes resources storageClassName volumeMode", but("volumeName", "theirs", "a volume of the space's own"), map[string]entry{"dataSourceRef": {why: names}, "dataSource": {why: "the API server makes it of dataSourceRef"}}),
		of[corev1.VolumeResourceRequirements](tenants, "requests limits"),
		of[corev1.TypedLocalObjectReference](names, "apiGroup kind", but("name", "theirs", names)),
		of[corev1.TypedObjectReference](names, "", but("apiGroup", "example.com", "that of snapshots"), but("kind", "Backup", "a claim, or a snapshot"), but("name", "theirs", names)),
		of[resourcev1.ResourceClaim](tenants, "metadata spec", whole(server, "status")),
		of[resourcev1.ResourceClaimSpec](tenants, "devices"),
		of[resourcev1.DeviceClaim](tenants, "constraints", but("requests", []resourcev1.DeviceRequest{}, "at least one, so that the quota counts it")),
		of[resourcev1.DeviceRequest](tenants, "name exactly firstAvailable"),
		of[resourcev1.ExactDeviceRequest](counted, "selectors allocationMode count", but("deviceClassName", "theirs.example", counted)),
		of[resourcev1.DeviceSubRequest](counted, "name selectors allocationMode count", but("deviceClassName", "theirs.example", counted)),
		of[resourcev1.DeviceSelector](tenants, "cel"),
		of[resourcev1.CELDeviceSelector]("simple ones", "", but("expression", "[1, 2].all(x, x > 0)", "simple ones")),
		of[resourcev1.DeviceConstraint](tenants, "requests matchAttribute distinctAttribute"),
		of[snapshotv1.VolumeSnapshot](tenants, "metadata spec", whole(server, "status")),
		of[snapshotv1.VolumeSnapshotSpec](tenants, "source volumeSnapshotClassName"),
		of[snapshotv1.VolumeSnapshotSource](names, "", but("persistentVolumeClaimName", "theirs", names)),

		of[networkingv1.NetworkPolicy](tenants, "metadata spec"),
		of[networkingv1.NetworkPolicySpec](tenants, "podSelector policyTypes ingress egress"),
		of[networkingv1.NetworkPolicyIngressRule](tenants, "ports from"),
		of[networkingv1.NetworkPolicyEgressRule](tenants, "ports to"),
		of[networkingv1.NetworkPolicyPort](tenants, "protocol port endPort"),
		of[networkingv1.NetworkPolicyPeer](tenants, "podSelector", but("namespaceSelector", metav1.LabelSelector{}, "that of the callers whom the admin lets in"),
			map[string]entry{"ipBlock": {why: "public addresses"}}),
		of[networkingv1.IPBlock]("public addresses", "except", but("cidr", "10.0.0.0/8", "public addresses")),
		of[networkingv1.Ingress](tenants, "metadata spec", whole(server, "status")),
		of[networkingv1.IngressSpec](tenants, "ingressClassName rules tls"),
		of[networkingv1.IngressRule](tenants, "http", but("host", "*.example.com", "one name")),
		of[networkingv1.HTTPIngressRuleValue](tenants, "paths"),
		of[networkingv1.HTTPIngressPath](tenants, "pathType backend", but("path", "/a;b", "what a controller reads as a path")),
		of[networkingv1.IngressBackend](tenants, "service"),
		of[networkingv1.IngressServiceBackend](tenants, "port", but("name", "theirs", names)),
		of[networkingv1.ServiceBackendPort](tenants, "name number"),
		of[networkingv1.IngressTLS](tenants, "", but("hosts", []string{"*.example.com"}, "names"), but("secretName", "theirs", names)),
		of[policyv1.PodDisruptionBudget](tenants, "metadata spec", whole(server, "status")),
		of[policyv1.PodDisruptionBudgetSpec]("as Berth works it out", "minAvailable", but("selector", metav1.LabelSelector{}, "the pods that Berth puts under it"),
			but("unhealthyPodEvictionPolicy", "IfHealthyBudget", "always AlwaysAllow")),
		of[schedulingv1.PriorityClass]("within the admin's bound", "metadata preemptionPolicy", but("value", 101, "within the admin's bound")),
		of[storagev1.StorageClass](tenants, "metadata parameters allowVolumeExpansion volumeBindingMode", but("provisioner", "theirs.example", "one that the admin offers"),
			but("reclaimPolicy", "Retain", "Delete")),
		of[corev1.PersistentVolume](tenants, "metadata spec", whole(server, "status")),
		of[corev1.PersistentVolumeSpec](tenants, "capacity accessModes volumeMode claimRef csi", but("persistentVolumeReclaimPolicy", "Delete", "Retain"), but("storageClassName", "gold", "none")),
		of[corev1.CSIPersistentVolumeSource](tenants, "readOnly", but("driver", "theirs.example", "one that the admin offers"), but("volumeHandle", "theirs/more", "one of the space's"),
			but("fsType", "vfat", "one of those that Berth allows")),
		of[corev1.ObjectReference](names, "apiVersion uid resourceVersion", but("kind", "Pod", "a claim"), but("namespace", "berth-theirs", "the space's"), but("name", "theirs", names)),
	)
	maps.Copy(out, podFields())
	maps.Copy(out, gatewayFields())
	return out
}

func gatewayFields() Table {
	return table(
		of[gatewayv1.Gateway](tenants, "metadata spec", whole(server, "status")),
		of[gatewayv1.GatewaySpec](tenants, "gatewayClassName listeners", map[string]entry{"allowedListeners": {why: "filled in by newer definitions"}}),
		of[gatewayv1.AllowedListeners]("filled in by newer definitions", "namespaces"),
		of[gatewayv1.ListenerNamespaces]("filled in by newer definitions", "", but("from", "All", "None")),
		of[gatewayv1.Listener](tenants, "name hostname tls allowedRoutes", but("port", 22, "80 or 443"), but("protocol", "TCP", "HTTP or HTTPS")),
		of[gatewayv1.AllowedRoutes]("those of the space", "namespaces kinds"),
		of[gatewayv1.RouteNamespaces]("those of the space", "", but("from", "All", "Same")),
		of[gatewayv1.RouteGroupKind]("HTTPRoute", "group", but("kind", "TCPRoute", "HTTPRoute")),
		of[gatewayv1.GatewayTLSConfig](tenants, "mode certificateRefs"),
		of[gatewayv1.SecretObjectReference](names, "group kind", but("name", "theirs", names)),

		of[gatewayv1.HTTPRoute](tenants, "metadata spec", whole(server, "status")),
		of[gatewayv1.HTTPRouteSpec](tenants, "parentRefs hostnames rules"),
		of[gatewayv1.ParentReference](names, "group kind sectionName port", but("name", "theirs", names)),
		of[gatewayv1.HTTPRouteRule](tenants, "name matches filters backendRefs timeouts retry"),
		of[gatewayv1.HTTPRouteMatch](tenants, "path headers queryParams method"),
		of[gatewayv1.HTTPPathMatch](tenants, "type value"),
		of[gatewayv1.HTTPHeaderMatch](tenants, "type name value"),
		of[gatewayv1.HTTPQueryParamMatch](tenants, "type name value"),
		of[gatewayv1.HTTPRouteFilter](tenants, "type requestHeaderModifier responseHeaderModifier requestMirror requestRedirect urlRewrite"),
		of[gatewayv1.HTTPHeaderFilter](tenants, "set add remove"),
		of[gatewayv1.HTTPHeader](tenants, "name value"),
		of[gatewayv1.HTTPRequestMirrorFilter](tenants, "backendRef percent fraction"),
		of[gatewayv1.Fraction](tenants, "numerator denominator"),
		of[gatewayv1.HTTPRequestRedirectFilter](tenants, "scheme hostname path port statusCode"),
		of[gatewayv1.HTTPURLRewriteFilter](tenants, "hostname path"),
		of[gatewayv1.HTTPPathModifier](tenants, "type replaceFullPath replacePrefixMatch"),
		of[gatewayv1.HTTPBackendRef](names, "group kind port weight filters", but("name", "theirs", names)),
		of[gatewayv1.BackendObjectReference](names, "group kind port", but("name", "theirs", names)),
		of[gatewayv1.HTTPRouteTimeouts](tenants, "request backendRequest"),
		of[gatewayv1.HTTPRouteRetry](tenants, "codes attempts backoff"),
	)
}
