// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CRDPolicyName is the name of the one CRDPolicy that a space may have.
const CRDPolicyName = "default"

// CRDPolicy says which CustomResourceDefinition this space uses if it has its own, and the platform shares another one of the same name.
// Its name is default. Without the object, the policy is LocalCRDFirst.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type CRDPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which definitions are used.
	// +required
	Spec CRDPolicySpec `json:"spec,omitzero"`
}

// CRDPolicySpec says which definitions are used.
type CRDPolicySpec struct {
	// policy is LocalCRDFirst, SystemCRDFirst, or NeverUseSystemCRDUnlessForced. LocalCRDFirst uses the definition of the space if there
	// is one, and otherwise the one that the platform shares. SystemCRDFirst uses the one that the platform shares if there is one, and
	// otherwise that of the space. NeverUseSystemCRDUnlessForced uses only that of the space. Whatever the policy is, the space uses
	// definitions that the platform forces on it. A change deletes nothing: objects of a definition that isn't used are there again when
	// it is used again.
	// +required
	Policy CRDPolicyType `json:"policy,omitempty"`
}

// CRDPolicyType says which definition is used.
//
// +kubebuilder:validation:Enum=LocalCRDFirst;SystemCRDFirst;NeverUseSystemCRDUnlessForced
type CRDPolicyType string

// Policies.
const (
	LocalCRDFirst                 CRDPolicyType = "LocalCRDFirst"
	SystemCRDFirst                CRDPolicyType = "SystemCRDFirst"
	NeverUseSystemCRDUnlessForced CRDPolicyType = "NeverUseSystemCRDUnlessForced"
)

// CRDPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type CRDPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []CRDPolicy `json:"items"`
}
