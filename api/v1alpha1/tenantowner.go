// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantOwner is an owner of each tenant whose spec.permissions.matchOwners selects this object by its labels.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type TenantOwner struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the owner. If a tenant has an owner of the same kind and name, the clusterRoles of both are joined.
	// +required
	Spec Owner `json:"spec,omitzero"`
}

// TenantOwnerList is a list of owners.
//
// +kubebuilder:object:root=true
type TenantOwnerList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TenantOwner `json:"items"`
}
