// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SystemRole gives users of the tenant system rights in spaces: in all, in those of some tenants, or in the system space, which is the
// API of an embedded host.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.scopeType`
// +kubebuilder:printcolumn:name="Tenants",type=string,JSONPath=`.spec.tenants`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type SystemRole struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says who has which rights where.
	// +required
	Spec SystemRoleSpec `json:"spec,omitzero"`
}

// SystemRoleSpec says who has which rights where.
//
// +kubebuilder:validation:XValidation:rule="(self.scopeType == 'Tenants') == has(self.tenants)",message="tenants is set if scopeType is Tenants, and only then"
type SystemRoleSpec struct {
	// subjects are users and groups of the tenant system, by the names that credentials of the platform have.
	// +required
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Subjects []SystemSubject `json:"subjects,omitempty"`
	// scopeType is Cluster for all spaces and the system space, System for the system space, and Tenants for the spaces of the tenants
	// in tenants.
	// +required
	ScopeType SystemScope `json:"scopeType,omitempty"`
	// tenants are names of tenants. Those that don't exist are ignored.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Tenants []string `json:"tenants,omitempty"`
	// rules are the rights, as in a ClusterRole. They hold in all namespaces, in addition to what RBAC of the space allows. The verb
	// impersonate can't be given, and "*" doesn't include it.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Rules []rbacv1.PolicyRule `json:"rules,omitempty"`
}

// SystemSubject is a user or a group of the tenant system.
type SystemSubject struct {
	// kind is User or Group.
	// +required
	Kind SystemSubjectKind `json:"kind,omitempty"`
	// name is the name of the user or group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// SystemSubjectKind is the kind of a [SystemSubject].
//
// +kubebuilder:validation:Enum=User;Group
type SystemSubjectKind string

// Kinds of subjects of the tenant system.
const (
	SystemUserKind  SystemSubjectKind = "User"
	SystemGroupKind SystemSubjectKind = "Group"
)

// SystemScope says where a SystemRole holds.
//
// +kubebuilder:validation:Enum=Cluster;System;Tenants
type SystemScope string

// Scopes of a SystemRole.
const (
	// ScopeCluster is all spaces, and the system space.
	ScopeCluster SystemScope = "Cluster"
	// ScopeSystem is the system space.
	ScopeSystem SystemScope = "System"
	// ScopeTenants is the spaces of some tenants.
	ScopeTenants SystemScope = "Tenants"
)

// SystemRoleList is a list of roles.
//
// +kubebuilder:object:root=true
type SystemRoleList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []SystemRole `json:"items"`
}
