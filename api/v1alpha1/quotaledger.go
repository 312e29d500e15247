// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// QuotaLedger says how the quota of the Tenant of its name is divided among the tenant's spaces and the tenants directly below. The
// operator writes the spec, and the platforms the status. The ResourceQuota of each space's namespace on the host has what the ledger
// grants the space, so that all spaces together never exceed the quota.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.limit.requests\.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.limit.requests\.memory`
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.spec.limit.pods`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type QuotaLedger struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the operator knows of the tenant.
	// +required
	Spec QuotaLedgerSpec `json:"spec,omitzero"`
	// status is how the quota is divided.
	// +optional
	Status QuotaLedgerStatus `json:"status,omitzero"`
}

// QuotaLedgerList is a list of quota ledgers.
//
// +kubebuilder:object:root=true
type QuotaLedgerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []QuotaLedger `json:"items"`
}

// QuotaLedgerSpec is what the operator knows of a tenant.
type QuotaLedgerSpec struct {
	// parent is the tenant above, of whose quota this one gets a share. If it is not set, the tenant is a root of the tree.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	Parent string `json:"parent,omitempty"`
	// limit is the quota of the tenant: for each resource the lower one of what the Tenant says and of the parent's limit.
	// +required
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Limit map[corev1.ResourceName]resource.Quantity `json:"limit,omitempty"`
}

// QuotaLedgerStatus is how the quota of a tenant is divided.
//
// +kubebuilder:validation:MinProperties=1
type QuotaLedgerStatus struct {
	// allotted is what the ledger of the parent grants this tenant. It is never more than that ledger has reserved.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Allotted map[corev1.ResourceName]resource.Quantity `json:"allotted,omitempty"`
	// mark is that of the parent's share the last time that allotted was lowered.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Mark string `json:"mark,omitempty"`
	// shares are those of the tenant's spaces and of the tenants directly below.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Shares []QuotaShare `json:"shares,omitempty"`
}

// QuotaShare is the part of a quota that a space or a tenant may use.
type QuotaShare struct {
	// kind is Space or Tenant.
	// +required
	Kind QuotaHolderKind `json:"kind,omitempty"`
	// name is the name of the space or of the tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	Name string `json:"name,omitempty"`
	// reserved is what nobody else can have. The sum of all shares is never more than the quota.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Reserved map[corev1.ResourceName]resource.Quantity `json:"reserved,omitempty"`
	// lowering is what the share is being lowered to. If it is not set, the share is not being lowered. Less is reserved once the
	// space or the tenant has less, and the mark.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Lowering map[corev1.ResourceName]resource.Quantity `json:"lowering,omitempty"`
	// mark tells this lowering from others.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Mark string `json:"mark,omitempty"`
}

// QuotaHolderKind is the kind of who has a share of a quota.
//
// +kubebuilder:validation:Enum=Space;Tenant
type QuotaHolderKind string

// Kinds of who has a share of a quota.
const (
	SpaceHolder  QuotaHolderKind = "Space"
	TenantHolder QuotaHolderKind = "Tenant"
)
