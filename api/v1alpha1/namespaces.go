// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// Namespaces is what the namespaces of a space have, besides those that each space begins with: default, kube-system,
// kube-public, and kube-node-lease.
//
// +kubebuilder:validation:MinProperties=1
type Namespaces struct {
	// quota is how many namespaces there may be. What exists beyond a lower quota stays. If it is not set, there is no limit
	// other than that of objects.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Quota *int32 `json:"quota,omitempty"`
	// labels are those that each namespace has. Users of the space can't change them.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, ['berth.dev/', 'kubernetes.io/', 'k8s.io/'].exists(domain, key.startsWith(domain) || key.contains('.' + domain)))",message="labels of berth.dev, kubernetes.io, and k8s.io are set by Berth and by Kubernetes"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are those that each namespace has. Users of the space can't change them.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, ['berth.dev/', 'kubernetes.io/', 'k8s.io/', 'x-k8s.io/'].exists(domain, key.startsWith(domain) || key.contains('.' + domain)))",message="annotations of berth.dev, kubernetes.io, k8s.io, and x-k8s.io are set by Berth and by Kubernetes"
	Annotations map[string]string `json:"annotations,omitempty"`
	// limitRanges are LimitRanges that each namespace has, also default and kube-system. Users of the space can't change them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	LimitRanges []corev1.LimitRangeSpec `json:"limitRanges,omitempty"`
	// networkPolicies are NetworkPolicies that each namespace has, also default and kube-system. Users of the space can't change them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	NetworkPolicies []networkingv1.NetworkPolicySpec `json:"networkPolicies,omitempty"`
}
