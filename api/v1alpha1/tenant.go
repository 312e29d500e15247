// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tenant is a user, a team, or a customer of the platform. It has a Space of its own name, and may have more.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth,shortName=tnt
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Spaces",type=string,JSONPath=`.status.summary.spaces`
// +kubebuilder:printcolumn:name="Namespace quota",type=integer,JSONPath=`.spec.namespaces.quota`
// +kubebuilder:printcolumn:name="Namespace count",type=integer,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Owners",type=string,JSONPath=`.status.summary.owners`
// +kubebuilder:printcolumn:name="Parent",type=string,JSONPath=`.spec.parent`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,priority=1
// +kubebuilder:printcolumn:name="Private",type=boolean,JSONPath=`.spec.private`,priority=1
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.summary.cpu`,priority=1
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.summary.memory`,priority=1
// +kubebuilder:printcolumn:name="Node selector",type=string,JSONPath=`.status.summary.nodeSelector`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 57",message="metadata.name: the name of a tenant may have at most 57 characters, because the names of its objects on the host begin with it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="metadata.name: the name of a tenant must not contain dots"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'host'",message="metadata.name: the name host is reserved"
// +kubebuilder:validation:XValidation:rule="!has(self.spec) || !has(self.spec.parent) || self.spec.parent != self.metadata.name",message="spec.parent: a tenant can't be its own parent; set spec.parent to another tenant, or leave it out"
// +kubebuilder:validation:XValidation:rule="self.metadata.name != 'system' || !has(self.spec) || !has(self.spec.cordoned) || !self.spec.cordoned",message="spec.cordoned: the tenant system is the platform itself, and can't be cordoned; remove the field"
type Tenant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the tenant is to be.
	// +optional
	// +default={"deletionPropagation":"Refuse"}
	Spec TenantSpec `json:"spec,omitzero"`
	// status is what the operator observed. Only the operator writes it.
	// +optional
	Status TenantStatus `json:"status,omitzero"`
}

// TenantList is a list of tenants.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Tenant `json:"items"`
}

// TenantSpec is what a tenant is to be.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="has(self.parent) == has(oldSelf.parent) && (!has(self.parent) || self.parent == oldSelf.parent)",message="the parent of a tenant can't be changed; create another tenant there, and move the spaces by snapshots"
type TenantSpec struct {
	// parent is the name of the tenant above this one in the tree of tenants. It can't be changed. If it is not set, the tenant is
	// a root of the tree.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Parent string `json:"parent,omitempty"`
	// private keeps the owners and the additional role bindings of the tenants above from this tenant and those below it. The
	// parent of a private tenant must be private or a root of the tree. Defaults to false.
	// +optional
	Private *bool `json:"private,omitempty"`
	// deletionPropagation says what becomes of the tenants below this one when it is deleted: Subtree deletes them, and Refuse
	// keeps this one from being deleted while there are any. Defaults to Refuse.
	// +optional
	// +default="Refuse"
	DeletionPropagation DeletionPropagation `json:"deletionPropagation,omitempty"`
	// owners own the tenant: they use its spaces, and can't change this object.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Owners []Owner `json:"owners,omitempty"`
	// permissions select further owners.
	// +optional
	Permissions Permissions `json:"permissions,omitzero"`
	// ownerProfile says how far the rights of owners reach in the tenant's spaces. Defaults to that of the BerthConfiguration,
	// and if that sets none, to SpaceAdmin.
	// +optional
	OwnerProfile OwnerProfile `json:"ownerProfile,omitempty"`
	// additionalRoleBindings are bound in each namespace of the tenant's spaces. Their subjects are not owners.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	AdditionalRoleBindings []AdditionalRoleBinding `json:"additionalRoleBindings,omitempty"`
	// cordoned lets all clients of the tenant's spaces read and delete only. What runs in the spaces runs on. Defaults to false.
	// +optional
	Cordoned *bool `json:"cordoned,omitempty"`
	// namespaces is what the namespaces of the tenant's spaces have. The quota is for all spaces together.
	// +optional
	Namespaces Namespaces `json:"namespaces,omitzero"`
	// hostNamespaces is metadata of the namespaces of the tenant's spaces on the host, such as a cost center.
	// +optional
	HostNamespaces HostNamespace `json:"hostNamespaces,omitzero"`
	// quota is what all spaces of the tenant, and of all tenants below it, may use together. It can't be more than that of the parent.
	// For a resource that it doesn't name, it is that of the BerthConfiguration, and if that sets none, that of the platform.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	Quota map[corev1.ResourceName]resource.Quantity `json:"quota,omitempty"`
	// quotaOvercommit says whether the quotas of the tenants directly below may be more than this one's together. Their use never is.
	// With Refused, each of these tenants has at most what the older ones leave, of the resources that quota names. Those whose quota
	// doesn't name a resource have what the others leave. Defaults to Allowed.
	// +optional
	// +default="Allowed"
	QuotaOvercommit QuotaOvercommit `json:"quotaOvercommit,omitempty"`
	// scopedQuotas are further quotas on the host of each of the tenant's spaces, each for a part of its pods. A space may set another
	// one of the same name.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ScopedQuotas []ScopedQuota `json:"scopedQuotas,omitempty"`
	// limits are how much of the process all spaces of the tenant may use together, such as requests-writing: 500. A name that it lacks is
	// as the BerthConfiguration says, and if that doesn't, four times the default of one space. The names are in the reference of limits.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=6
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['memory-bytes', 'watches', 'requests-reading', 'requests-writing', 'requests-long-running', 'request-rate'])",message="must be limits of a tenant: memory-bytes, watches, requests-reading, requests-writing, requests-long-running, or request-rate"
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
	// audit says what is recorded of the requests to the tenant's spaces, and where it is sent. It takes effect at once.
	// +optional
	Audit Audit `json:"audit,omitzero"`
	// limitRange are the limits on the host of each of the tenant's spaces that sets none.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(limit, limit.type in ['Container', 'Pod', 'PersistentVolumeClaim'])",message="the type of a limit must be Container, Pod, or PersistentVolumeClaim"
	LimitRange []corev1.LimitRangeItem `json:"limitRange,omitempty"`
	// nodes are those of the host's nodes that the pods of the tenant's spaces run on. The selector is added to that of the
	// tenant above, and allowedLabels and tolerations are among those of the tenant above, whose they are if they are not set.
	// A space may narrow the selector, and adds its own allowedLabels. Its own tolerations replace these.
	// +optional
	Nodes Nodes `json:"nodes,omitzero"`
	// priority is which PriorityClasses of the host the pods of the tenant's spaces have. allowedClasses are among those of the
	// tenant above, whose they are if they are not set, as is defaultClass. What a space sets itself replaces these.
	// preemption takes effect while the spaces of no other tenant can run pods on the nodes.
	// +optional
	Priority Priority `json:"priority,omitzero"`
	// workloadIdentity are the annotations of ServiceAccounts by which pods of the tenant's spaces have identities of a cloud, and the
	// values that they may have. A space may set another entry for an annotation. Tenants below don't have them. The spaces need the
	// sync option serviceaccounts.
	// +optional
	// +listType=map
	// +listMapKey=annotation
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	WorkloadIdentity []WorkloadIdentity `json:"workloadIdentity,omitempty"`
	// patches set fields of the pods of the tenant's spaces on the host, after those of the platform's configuration and before those that a
	// space has itself. A space may set another patch of a name. Tenants below don't have them.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Patches []SyncPatch `json:"patches,omitempty"`
	// space is what the space of the tenant's name is created with. Later changes of the space are made in the Space object.
	// +optional
	Space TenantSpace `json:"space,omitzero"`
}

// QuotaOvercommit says whether the quotas of tenants may be more than that of the tenant above together.
//
// +kubebuilder:validation:Enum=Allowed;Refused
type QuotaOvercommit string

// The values of [QuotaOvercommit].
const (
	OvercommitAllowed QuotaOvercommit = "Allowed"
	OvercommitRefused QuotaOvercommit = "Refused"
)

// DeletionPropagation says what becomes of the tenants below a deleted one.
//
// +kubebuilder:validation:Enum=Refuse;Subtree
type DeletionPropagation string

// Propagations of a deletion.
const (
	RefuseDeletion DeletionPropagation = "Refuse"
	DeleteSubtree  DeletionPropagation = "Subtree"
)

// Permissions select owners of a tenant.
//
// +kubebuilder:validation:MinProperties=1
type Permissions struct {
	// matchOwners are selectors of TenantOwner objects. Those that match one of the selectors are owners of the tenant.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	MatchOwners []metav1.LabelSelector `json:"matchOwners,omitempty"`
}

// TenantSpace is what the space of a tenant's name is created with.
//
// +kubebuilder:validation:MinProperties=1
type TenantSpace struct {
	// platformName is the name of the platform that serves the space. Defaults to that of the BerthConfiguration, and if that
	// sets none, to berth.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	PlatformName string `json:"platformName,omitempty"`
	// isolation is Shared or Dedicated. Defaults to that of the BerthConfiguration, and if that sets none, to Shared.
	// +optional
	Isolation Isolation `json:"isolation,omitempty"`
	// deletionPolicy says what becomes of the space's store when the tenant is deleted. Defaults to Delete.
	// +optional
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}
