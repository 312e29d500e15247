// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names by which tenants and what belongs to them are found.
const (
	// TenantFinalizer is on each Tenant until its spaces and the tenants below it are deleted.
	TenantFinalizer = "berth.dev/tenant"
	// LabelTenant on a Space names its tenant.
	LabelTenant = "berth.dev/tenant"
	// LabelTreePrefix and the name of a tenant are the key of a label on each Tenant below it, and on their Spaces. Its value is
	// how many steps below.
	LabelTreePrefix = "tree.berth.dev/"

	// SystemTenant is the tenant whose space is the host's own API. It has no Space object.
	SystemTenant = "system"
	// DefaultTenant is the tenant that exists from the start, besides SystemTenant.
	DefaultTenant = "default"
)

// Reasons of the condition Ready of a Tenant, besides ReasonInvalidSpec.
const (
	// ReasonActive is that of Ready when it is True.
	ReasonActive = "Active"
	// ReasonSpacesNotReady makes Ready False while a space of the tenant is not ready.
	ReasonSpacesNotReady = "SpacesNotReady"
	// ReasonInvalidParent makes Ready False for a tenant that can't be in the tree where it is.
	ReasonInvalidParent = "InvalidParent"
	// ReasonInvalidQuota makes Ready False for a tenant whose quota is more than that of its parent.
	ReasonInvalidQuota = "InvalidQuota"
	// ReasonDeleting makes Ready False for a tenant whose spaces are being deleted.
	ReasonDeleting = "Deleting"
	// ReasonHasChildren makes Ready False for a tenant that can't be deleted because of the tenants below it.
	ReasonHasChildren = "HasChildren"
	// ReasonNameTaken makes Ready False for a tenant whose name a space of somebody else has.
	ReasonNameTaken = "NameTaken"
)

// TenantState is a summary of a tenant. The conditions have the details.
//
// +kubebuilder:validation:Enum=Active;Cordoned;Invalid;Deleting
type TenantState string

// States of a tenant.
const (
	// TenantActive is that of a tenant that uses its spaces.
	TenantActive TenantState = "Active"
	// TenantCordoned is that of a tenant whose clients may read and delete only.
	TenantCordoned TenantState = "Cordoned"
	// TenantInvalid is that of a tenant that Ready is False for because of its spec.
	TenantInvalid TenantState = "Invalid"
	// TenantDeleting is that of a tenant that is being deleted.
	TenantDeleting TenantState = "Deleting"
)

// TenantStatus is what the operator observed of a tenant.
//
// +kubebuilder:validation:MinProperties=1
type TenantStatus struct {
	// conditions has Ready. It is True while all spaces of the tenant are ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// state is a summary of the conditions.
	// +optional
	State TenantState `json:"state,omitempty"`
	// owners are all owners of the tenant: those of its spec, those that its permissions select, and those of the tenants
	// above whose rights flow down to it.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Owners []OwnerStatus `json:"owners,omitempty"`
	// namespaces are the names of the namespaces of the tenant's spaces, at most the first 500 of them. Those of a space that
	// doesn't have the tenant's name are SPACE/NAMESPACE.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Namespaces []string `json:"namespaces,omitempty"`
	// size is the number of namespaces of the tenant's spaces.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Size *int32 `json:"size,omitempty"`
	// spaces are the names of the tenant's spaces, at most the first 100 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=57
	Spaces []string `json:"spaces,omitempty"`
	// children is the number of tenants directly below this one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Children *int32 `json:"children,omitempty"`
	// usage is what the tenant's own spaces use.
	// +optional
	Usage TenantUsage `json:"usage,omitzero"`
	// subtree is what the tenant and all tenants below it use together.
	// +optional
	Subtree SubtreeUsage `json:"subtree,omitzero"`
	// summary is what kubectl get prints of the other fields. Programs read those.
	// +optional
	Summary TenantSummary `json:"summary,omitzero"`
}

// OwnerStatus is an owner with all of its roles.
type OwnerStatus struct {
	// kind is User, Group, ServiceAccount, or HostServiceAccount.
	// +required
	Kind SubjectKind `json:"kind,omitempty"`
	// name is the name by which the owner authenticates.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// clusterRoles are the ClusterRoles that are bound to the owner in each namespace.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ClusterRoles []string `json:"clusterRoles,omitempty"`
	// inheritedFrom is the nearest tenant above that has the owner, if this tenant itself doesn't have it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	InheritedFrom string `json:"inheritedFrom,omitempty"`
}

// TenantUsage is the quota of a tenant, and what its own spaces use of it.
//
// +kubebuilder:validation:MinProperties=1
type TenantUsage struct {
	// hard is the quota of the tenant, for its spaces and for all tenants below together. It is never more than that of the parent.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Hard map[corev1.ResourceName]resource.Quantity `json:"hard,omitempty"`
	// used is the sum of what the tenant's own spaces use.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Used map[corev1.ResourceName]resource.Quantity `json:"used,omitempty"`
}

// SubtreeUsage is what a tenant and all tenants below it use together.
//
// +kubebuilder:validation:MinProperties=1
type SubtreeUsage struct {
	// tenants is the number of tenants below this one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Tenants *int32 `json:"tenants,omitempty"`
	// spaces is the number of spaces of all these tenants.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Spaces *int32 `json:"spaces,omitempty"`
	// namespaces is the number of namespaces of all these spaces.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Namespaces *int32 `json:"namespaces,omitempty"`
	// used is the sum of what the spaces use of their quotas on the host.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Used map[corev1.ResourceName]resource.Quantity `json:"used,omitempty"`
}

// TenantSummary is what kubectl get prints of a tenant.
//
// +kubebuilder:validation:MinProperties=1
type TenantSummary struct {
	// spaces is how many spaces are ready, such as 1/2.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Spaces string `json:"spaces,omitempty"`
	// owners are the names of the first owners, and how many more there are.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Owners string `json:"owners,omitempty"`
	// cpu is CPU that the tenant and the tenants below it use of the tenant's quota, such as 500m/8.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CPU string `json:"cpu,omitempty"`
	// memory is memory that they use of the tenant's quota, such as 1Gi/16Gi.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Memory string `json:"memory,omitempty"`
	// nodeSelector is the node selector of the pods of the tenant's spaces, such as pool=acme.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	NodeSelector string `json:"nodeSelector,omitempty"`
}
