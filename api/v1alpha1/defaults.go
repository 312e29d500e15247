// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// DefaultPlatformName is the name of a platform, and of the one that a space is for, if none is said.
const DefaultPlatformName = "berth"

// Finalizer is on each Space that a platform serves, until nothing is left of what the platform made for it.
const Finalizer = "berth.dev/space"

// AnnotationMoveTo on a Space asks for a move to the shard that it names, or, if it is empty, to another shard. The operator removes it
// once it has decided.
const AnnotationMoveTo = "berth.dev/move-to"

// LabelKubernetesVersion is the label that the selectors of shards see on a Space with spec.kubernetesVersion. No object has it.
const LabelKubernetesVersion = "berth.dev/kubernetes-version"

// AnnotationTrustDedicated on a Space, with the value "true", says that the admin trusts what ran in the space's pod. Otherwise,
// a store that comes from a pod is not opened in the process of all shared spaces.
const AnnotationTrustDedicated = "berth.dev/trust-dedicated"

// DefaultIgnoredUserAgents returns prefixes of the User-Agent headers of Argo CD, Flux, and Prometheus, which read a
// space however little it is used. They are no default in the definition, because the platform's configuration may have
// others.
func DefaultIgnoredUserAgents() []string {
	return []string{"argocd-", "helm-controller/", "kustomize-controller/", "Prometheus/"}
}

// DefaultQuota returns the quota of a tenant, and of a space that has none, if nothing else is said.
func DefaultQuota() map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{
		corev1.ResourcePods:                     resource.MustParse("200"),
		corev1.ResourceRequestsCPU:              resource.MustParse("16"),
		corev1.ResourceRequestsMemory:           resource.MustParse("64Gi"),
		corev1.ResourceLimitsCPU:                resource.MustParse("64"),
		corev1.ResourceLimitsMemory:             resource.MustParse("128Gi"),
		corev1.ResourceRequestsEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourceLimitsEphemeralStorage:   resource.MustParse("400Gi"),
		corev1.ResourceRequestsStorage:          resource.MustParse("500Gi"),
		corev1.ResourcePersistentVolumeClaims:   resource.MustParse("50"),
		corev1.ResourceServices:                 resource.MustParse("102"), // includes those for the API and DNS
		corev1.ResourceServicesLoadBalancers:    resource.MustParse("2"),
		corev1.ResourceServicesNodePorts:        resource.MustParse("5"),
		corev1.ResourceSecrets:                  resource.MustParse("1000"),
		corev1.ResourceConfigMaps:               resource.MustParse("500"),
		// The host creates one for each service, too.
		"count/endpointslices.discovery.k8s.io":   resource.MustParse("306"),
		"count/ingresses.networking.k8s.io":       resource.MustParse("50"),
		"count/networkpolicies.networking.k8s.io": resource.MustParse("103"), // three belong to Berth
		"count/poddisruptionbudgets.policy":       resource.MustParse("50"),
		"count/serviceaccounts":                   resource.MustParse("203"), // three belong to Berth and the host
	}
}
