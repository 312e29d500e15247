// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TenantAccess gives users of other tenants rights in this space, for as long as it exists.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
type TenantAccess struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says who has which rights.
	// +required
	Spec TenantAccessSpec `json:"spec,omitzero"`
}

// TenantAccessSpec says who has which rights, and until when.
type TenantAccessSpec struct {
	// subjects are the users who have the rights. They must have credentials of the platform, which name their tenant.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Subjects []TenantSubject `json:"subjects,omitempty"`
	// rules are the rights. Users also get the discovery of the API, and may ask what their rights are. RBAC of the space gives them
	// nothing.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Rules []TenantAccessRule `json:"rules,omitempty"`
	// expirationTime is when the rights end. If it is not set, they end with this object.
	// +optional
	ExpirationTime *metav1.Time `json:"expirationTime,omitempty"`
}

// TenantSubject is a tenant, or some of its users.
type TenantSubject struct {
	// tenant is the name of the users' tenant.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Tenant string `json:"tenant,omitempty"`
	// users are names of users of the tenant, by the names that their credentials have. If neither users nor groups are set, all
	// users of the tenant have the rights.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Users []string `json:"users,omitempty"`
	// groups are groups of the tenant, whose members have the rights.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Groups []string `json:"groups,omitempty"`
}

// TenantAccessRule is a right on resources, as in a ClusterRole.
type TenantAccessRule struct {
	// verbs are what may be done, such as get, list, and watch. "*" stands for all verbs except impersonate, which can't be given.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Verbs []string `json:"verbs,omitempty"`
	// apiGroups are the API groups of the resources: "" for the core group, "*" for all.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	APIGroups []string `json:"apiGroups,omitempty"`
	// resources are the resources, such as pods, or pods/log for a subresource, or "*" for all.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Resources []string `json:"resources,omitempty"`
	// resourceNames limits the rule to objects with these names.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ResourceNames []string `json:"resourceNames,omitempty"`
	// namespaces limits the rule to these namespaces. If it is not set, the rule is for all namespaces, and for resources that are
	// in none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
}

// TenantAccessList is a list of what a space gives to users of other tenants.
//
// +kubebuilder:object:root=true
type TenantAccessList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []TenantAccess `json:"items"`
}
