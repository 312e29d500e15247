// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the condition Ready of a CRDShare.
const (
	// ReasonShared is that of Ready when it is True.
	ReasonShared = "Shared"
	// ReasonDefinitionNotFound makes Ready False while the host has no definition of the name.
	ReasonDefinitionNotFound = "DefinitionNotFound"
	// ReasonDefinitionUnsupported makes Ready False if the definition can't be shared.
	ReasonDefinitionUnsupported = "DefinitionUnsupported"
	// ReasonDefinitionUnavailable makes Ready False while the definition can't be read.
	ReasonDefinitionUnavailable = "DefinitionUnavailable"
)

// CRDShare shares a CustomResourceDefinition of the host with the spaces of tenants. Its name is that of the definition, such as
// certificates.cert-manager.io. The objects of the kind are those of each space: only the definition is shared.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type CRDShare struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says with whom the definition is shared, and how.
	// +required
	Spec CRDShareSpec `json:"spec,omitzero"`
	// status is what the platform observed. Only the platform writes it.
	// +optional
	Status CRDShareStatus `json:"status,omitzero"`
}

// CRDShareSpec says with whom a definition is shared, and how.
type CRDShareSpec struct {
	// mode is Optional if each tenant chooses which definition its spaces use if they have their own of that name, with a CRDPolicy. It
	// is Forced if the spaces of the selected tenants always use the shared one. Then users of the spaces can't create their own, and an
	// own one that is there already has no effect as long as the share is forced.
	// +required
	Mode CRDShareMode `json:"mode,omitempty"`
	// tenants select the tenants with which the definition is shared. A tenant is selected if one of the items selects it. If it is not
	// set, the definition is shared with none. A space without a tenant is never selected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Tenants []CRDShareTenants `json:"tenants,omitempty"`
}

// CRDShareMode says how a definition is shared.
//
// +kubebuilder:validation:Enum=Optional;Forced
type CRDShareMode string

// Modes of a CRDShare.
const (
	// OptionalCRD leaves the choice to the tenants.
	OptionalCRD CRDShareMode = "Optional"
	// ForcedCRD overrides definitions of tenants.
	ForcedCRD CRDShareMode = "Forced"
)

// CRDShareTenants selects tenants, by names or by a selector.
//
// +kubebuilder:validation:ExactlyOneOf=names;selector
type CRDShareTenants struct {
	// names are names of tenants. Those that don't exist are ignored.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`
	// selector selects tenants by the labels of the Tenants. An empty selector selects all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// CRDShareStatus is what the platform observed of a share.
//
// +kubebuilder:validation:MinProperties=1
type CRDShareStatus struct {
	// conditions has Ready. It is True if all spaces of the selected tenants can use the definition.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// storedVersions are the versions in which spaces may have stored objects. A version that the definition on the host no longer
	// has is kept in spaces, without being served, as long as it is listed here. Remove it when no object is stored in it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	StoredVersions []string `json:"storedVersions,omitempty"`
}

// CRDShareList is a list of shares.
//
// +kubebuilder:object:root=true
type CRDShareList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []CRDShare `json:"items"`
}
