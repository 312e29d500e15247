// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigurationName is the name of the one BerthConfiguration of a host.
const ConfigurationName = "berth"

// BerthConfiguration is what holds for all tenants of a host. There is one, with the name berth. The operator creates it if it
// doesn't exist.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:printcolumn:name="Default tenant",type=string,JSONPath=`.spec.defaultTenantName`
// +kubebuilder:printcolumn:name="Promotion",type=string,JSONPath=`.spec.serviceAccountPromotion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'berth'",message="metadata.name: there is one BerthConfiguration, with the name berth"
type BerthConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the configuration.
	// +optional
	// +default={"defaultTenantName":"default"}
	Spec BerthConfigurationSpec `json:"spec,omitzero"`
}

// BerthConfigurationList is a list of configurations.
//
// +kubebuilder:object:root=true
type BerthConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []BerthConfiguration `json:"items"`
}

// BerthConfigurationSpec is what holds for all tenants of a host.
//
// +kubebuilder:validation:MinProperties=1
type BerthConfigurationSpec struct {
	// defaultTenantName is the name of the tenant of identities that have none. The operator creates the tenant if it doesn't
	// exist. Defaults to default.
	// +optional
	// +default="default"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	DefaultTenantName string `json:"defaultTenantName,omitempty"`
	// ownerScope limits which subjects count as owners of tenants. Berth's kubeconfigs for owners have the group berth.dev.
	// Defaults to the members of this group, and all ServiceAccounts of the host, which are in berth:host:serviceaccounts.
	// +optional
	// +default={"groups":["berth.dev","berth:host:serviceaccounts"]}
	OwnerScope OwnerScope `json:"ownerScope,omitzero"`
	// administrators own all tenants. They have all rights in their spaces.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Administrators []Subject `json:"administrators,omitempty"`
	// additionalRoleBindings are bound in each namespace of all tenants' spaces, besides those of each tenant. Their subjects are not
	// owners. They give roles to groups that all tenants have, such as those of an identity service.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	AdditionalRoleBindings []AdditionalRoleBinding `json:"additionalRoleBindings,omitempty"`
	// serviceAccountPromotion says whether an owner may make a ServiceAccount of a space an owner by the label
	// owner.berth.dev/promote=true. Defaults to Disabled.
	// +optional
	// +default="Disabled"
	ServiceAccountPromotion Feature `json:"serviceAccountPromotion,omitempty"`
	// maxTreeDepth is how many tenants may be above a tenant. Defaults to 8.
	// +optional
	// +default=8
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	MaxTreeDepth *int32 `json:"maxTreeDepth,omitempty"`
	// tenantDefaults is what tenants have that don't set it.
	// +optional
	TenantDefaults TenantDefaults `json:"tenantDefaults,omitzero"`
}

// TenantDefaults is what tenants have that don't set it.
//
// +kubebuilder:validation:MinProperties=1
type TenantDefaults struct {
	// platformName is the name of the platform that serves the tenants' spaces.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	PlatformName string `json:"platformName,omitempty"`
	// isolation is that of the tenants' spaces.
	// +optional
	Isolation Isolation `json:"isolation,omitempty"`
	// ownerProfile says how far the rights of owners reach.
	// +optional
	OwnerProfile OwnerProfile `json:"ownerProfile,omitempty"`
	// quota is the quota on the host of each of the tenants' spaces.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	Quota map[corev1.ResourceName]resource.Quantity `json:"quota,omitempty"`
	// limits are how much of the process all spaces of a tenant may use together. The names are in the reference of limits.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=6
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['memory-bytes', 'watches', 'requests-reading', 'requests-writing', 'requests-long-running', 'request-rate'])",message="must be limits of a tenant: memory-bytes, watches, requests-reading, requests-writing, requests-long-running, or request-rate"
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
	// namespaceQuota is how many namespaces the spaces of a tenant may have together.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	NamespaceQuota *int32 `json:"namespaceQuota,omitempty"`
	// nodes are those of the host's nodes that the pods of the tenants' spaces run on, for tenants without a tenant above. A
	// tenant's own entries of selector take precedence, and its own allowedLabels and tolerations replace these.
	// +optional
	Nodes Nodes `json:"nodes,omitzero"`
	// priority is which PriorityClasses of the host the pods of the tenants' spaces have, for tenants without a tenant above.
	// +optional
	Priority PriorityClasses `json:"priority,omitzero"`
}
