// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CRDMatch says which CustomResourceDefinition of a name this space uses, and why. There is one for each name of which the space has a
// definition, or the platform shares one with it. It isn't stored, and nobody can write it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=crdmatches
type CRDMatch struct {
	metav1.TypeMeta `json:",inline"`
	// metadata has the name of the definition.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// status is what the space computes whenever it is read.
	// +optional
	Status CRDMatchStatus `json:"status,omitzero"`
}

// CRDMatchStatus says which definition is used, and why.
//
// +kubebuilder:validation:MinProperties=1
type CRDMatchStatus struct {
	// inForce is Local if the space uses its own definition, Shared if it uses the one that the platform shares, and None if it uses
	// none.
	// +optional
	InForce CRDOrigin `json:"inForce,omitempty"`
	// mode is Forced or Optional, as the platform shares its definition. It isn't set if the platform shares none of the name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	Mode string `json:"mode,omitempty"`
	// reason is why, in one word: Forced, LocalFirst, SystemFirst, OnlyShared, OnlyLocal, or NeverShared.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Reason string `json:"reason,omitempty"`
	// message is why, in a sentence.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// CRDOrigin says whose definition is used.
//
// +kubebuilder:validation:Enum=Local;Shared;None
type CRDOrigin string

// Origins.
const (
	LocalCRD  CRDOrigin = "Local"
	SharedCRD CRDOrigin = "Shared"
	NoCRD     CRDOrigin = "None"
)

// CRDMatchList is a list of matches.
//
// +kubebuilder:object:root=true
type CRDMatchList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []CRDMatch `json:"items"`
}
