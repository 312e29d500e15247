// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ScopedQuota is a ResourceQuota for a part of a space's pods. One has one field manager: if an admin changes a quota of a Space, the
// Tenant's must not be merged into it.
//
// +structType=atomic
// +kubebuilder:validation:XValidation:rule="has(self.scopes) || has(self.scopeSelector)",message="a scoped quota needs scopes or a scopeSelector; what is for all pods belongs in spec.quota"
type ScopedQuota struct {
	// name is the name of the quota. Its ResourceQuota on the host is berth-NAME.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// hard is the hard limit, for example pods: "10". A lower limit removes nothing that is there already.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	Hard map[corev1.ResourceName]resource.Quantity `json:"hard,omitempty"`
	// scopes select the pods, as those of a ResourceQuota do. The scopes CrossNamespacePodAffinity and VolumeAttributesClass aren't
	// possible: on the host, nothing of a space has what they select.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:Enum=BestEffort;NotBestEffort;PriorityClass;Terminating;NotTerminating
	Scopes []corev1.ResourceQuotaScope `json:"scopes,omitempty"`
	// scopeSelector selects the pods by scopes with values, as that of a ResourceQuota does.
	// +optional
	ScopeSelector ScopeSelector `json:"scopeSelector,omitzero"`
}

// ScopeSelector selects pods by scopes with values.
type ScopeSelector struct {
	// matchExpressions are those that a pod must match, all of them.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	MatchExpressions []ScopeExpression `json:"matchExpressions,omitempty"`
}

// ScopeExpression selects pods by a scope and its values.
type ScopeExpression struct {
	// scopeName is the scope.
	// +required
	// +kubebuilder:validation:Enum=BestEffort;NotBestEffort;PriorityClass;Terminating;NotTerminating
	ScopeName corev1.ResourceQuotaScope `json:"scopeName,omitempty"`
	// operator relates the scope to the values. Only Exists is possible with scopes other than PriorityClass.
	// +required
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist
	Operator corev1.ScopeSelectorOperator `json:"operator,omitempty"`
	// values are names of priority classes on the host, such as SPACE.NAME for a class that the tenant exports. Exists and DoesNotExist
	// have none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Values []string `json:"values,omitempty"`
}

// PodBandwidth bounds the bandwidth of each pod of a space.
//
// +kubebuilder:validation:MinProperties=1
type PodBandwidth struct {
	// ingress is the bandwidth to a pod.
	// +optional
	Ingress Bandwidth `json:"ingress,omitzero"`
	// egress is the bandwidth from a pod.
	// +optional
	Egress Bandwidth `json:"egress,omitzero"`
}

// Bandwidth is in bits per second, from 1k to 1P.
//
// +kubebuilder:validation:MinProperties=1
type Bandwidth struct {
	// default is the bandwidth of pods that set none. Defaults to max.
	// +optional
	Default *resource.Quantity `json:"default,omitempty"`
	// max is the maximum that a pod may set. If it is not set, a pod may set any, and none.
	// +optional
	Max *resource.Quantity `json:"max,omitempty"`
}

// ResourceRecount in the ResourceQuota of a space limits nothing. When its number changes, the host's controller counts again what the space
// uses.
const ResourceRecount corev1.ResourceName = "count/recounts.berth.dev"
