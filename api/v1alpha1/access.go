// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import rbacv1 "k8s.io/api/rbac/v1"

// Names by which the owners of tenants get and lose their rights in spaces.
const (
	// OwnersGroup is the group of the owners' kubeconfigs that Berth issues. By default, users count as owners only if
	// they are in it.
	OwnersGroup = "berth.dev"
	// NamespaceDeleterRole is the ClusterRole of each space that allows to delete the namespace that it is bound in.
	NamespaceDeleterRole = "berth-namespace-deleter"
	// LabelPromote on a ServiceAccount of a space, with the value "true", makes the ServiceAccount an owner.
	LabelPromote = "owner.berth.dev/promote"
)

// Names by which ServiceAccounts of the host are known in spaces. Nobody else has one that begins with berth:host:.
const (
	// TokenAudience is the audience of the tokens by which ServiceAccounts of the host prove who they are. The host's own API
	// rejects such a token, and Berth rejects all others.
	TokenAudience = "berth.dev"
	// HostServiceAccountUser begins the user of a ServiceAccount of the host: berth:host:serviceaccount:NAMESPACE:NAME.
	HostServiceAccountUser = "berth:host:serviceaccount:"
	// HostServiceAccountsGroup is the group of all ServiceAccounts of the host. Those of a namespace are also in
	// berth:host:serviceaccounts:NAMESPACE.
	HostServiceAccountsGroup = "berth:host:serviceaccounts"
)

// Access says who owns a space, and what the owners may do in it.
//
// +kubebuilder:validation:MinProperties=1
type Access struct {
	// owners are the users, groups, and ServiceAccounts that own the space, at most one entry for each.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Owners []Owner `json:"owners,omitempty"`
	// ownerProfile says how far the rights of owners reach. Defaults to SpaceAdmin.
	// +optional
	OwnerProfile OwnerProfile `json:"ownerProfile,omitempty"`
	// administrators own the space, whatever the scope of owners is. They have all rights in it.
	// +optional
	// +listType=map
	// +listMapKey=kind
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Administrators []Subject `json:"administrators,omitempty"`
	// ownerScope limits which subjects count as owners. If it is not set, all do.
	// +optional
	OwnerScope OwnerScope `json:"ownerScope,omitzero"`
	// serviceAccountPromotion says whether an owner may make a ServiceAccount of the space an owner by the label
	// owner.berth.dev/promote=true. Defaults to Disabled.
	// +optional
	ServiceAccountPromotion Feature `json:"serviceAccountPromotion,omitempty"`
	// additionalRoleBindings are bound in each namespace of the space. Their subjects are not owners.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=192
	AdditionalRoleBindings []AdditionalRoleBinding `json:"additionalRoleBindings,omitempty"`
	// cordoned lets all clients of the space read and delete only. What runs in the space runs on. Defaults to false.
	// +optional
	Cordoned *bool `json:"cordoned,omitempty"`
}

// Owner is a user, a group, or a ServiceAccount of the space or of the host that owns a tenant.
//
// +kubebuilder:validation:XValidation:rule="!self.kind.endsWith('ServiceAccount') || self.name.matches('^system:serviceaccount:[^:]+:[^:]+$')",message="the name of a ServiceAccount has the form system:serviceaccount:NAMESPACE:NAME"
type Owner struct {
	// kind is User, Group, ServiceAccount, or HostServiceAccount. A ServiceAccount is one of the space. A HostServiceAccount is one
	// of the host, and uses a token of the host with the audience berth.dev.
	// +required
	Kind SubjectKind `json:"kind,omitempty"`
	// name is the name by which the subject authenticates. That of a ServiceAccount, be it of the space or
	// the host, is system:serviceaccount:NAMESPACE:NAME.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// clusterRoles are the ClusterRoles of the space that are bound to the owner in each namespace. The list replaces the
	// default. With the ownerProfile SpaceAdmin, an owner with the role admin has all rights in the space. Defaults to admin
	// and berth-namespace-deleter.
	// +optional
	// +default=["admin","berth-namespace-deleter"]
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ClusterRoles []string `json:"clusterRoles,omitempty"`
	// labels are those of the owner's role bindings, besides the ones that Berth sets.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are those of the owner's role bindings.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}

// SubjectKind is the kind of those who act in a space.
//
// +kubebuilder:validation:Enum=User;Group;ServiceAccount;HostServiceAccount
type SubjectKind string

// Kinds of subjects.
const (
	UserKind           SubjectKind = "User"
	GroupKind          SubjectKind = "Group"
	ServiceAccountKind SubjectKind = "ServiceAccount" // of the space
	// HostServiceAccountKind is a kind of its own, because a tenant could create a ServiceAccount of the same name in its space.
	HostServiceAccountKind SubjectKind = "HostServiceAccount"
)

// Subject is a user, a group, or a ServiceAccount of the space or of the host.
//
// +kubebuilder:validation:XValidation:rule="!self.kind.endsWith('ServiceAccount') || self.name.matches('^system:serviceaccount:[^:]+:[^:]+$')",message="the name of a ServiceAccount has the form system:serviceaccount:NAMESPACE:NAME"
type Subject struct {
	// kind is User, Group, ServiceAccount, or HostServiceAccount. A ServiceAccount is one of the space. A HostServiceAccount is one
	// of the host, and uses a token of the host with the audience berth.dev.
	// +required
	Kind SubjectKind `json:"kind,omitempty"`
	// name is the name by which the subject authenticates. That of a ServiceAccount, be it of the space or
	// the host, is system:serviceaccount:NAMESPACE:NAME.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
}

// OwnerProfile says how far the rights of owners reach.
//
// +kubebuilder:validation:Enum=SpaceAdmin;NamespaceAdmin
type OwnerProfile string

// Profiles of owners.
const (
	// SpaceAdmin lets owners with the role admin do everything in the space, except for nodes.
	SpaceAdmin OwnerProfile = "SpaceAdmin"
	// NamespaceAdmin lets owners create namespaces, and gives them their roles in each namespace. They have no rights on
	// what is in no namespace.
	NamespaceAdmin OwnerProfile = "NamespaceAdmin"
)

// Feature says whether something is enabled.
//
// +kubebuilder:validation:Enum=Enabled;Disabled
type Feature string

// Values of a feature.
const (
	Enabled  Feature = "Enabled"
	Disabled Feature = "Disabled"
)

// OwnerScope limits which subjects count as owners.
//
// +kubebuilder:validation:MinProperties=1
type OwnerScope struct {
	// groups are the groups whose members count as owners. A Group counts as an owner only if it is in the list, or if its
	// members are in another group of the list.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Groups []string `json:"groups,omitempty"`
	// users are the users and ServiceAccounts that count as owners, whatever groups they are in. The user of a ServiceAccount of
	// the host is berth:host:serviceaccount:NAMESPACE:NAME.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Users []string `json:"users,omitempty"`
}

// AdditionalRoleBinding is bound in each namespace of a space.
type AdditionalRoleBinding struct {
	// clusterRoleName is the name of a ClusterRole of the space.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClusterRoleName string `json:"clusterRoleName,omitempty"`
	// subjects are those of the role bindings.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Subjects []rbacv1.Subject `json:"subjects,omitempty"`
	// labels are those of the role bindings, besides the ones that Berth sets.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are those of the role bindings.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	Annotations map[string]string `json:"annotations,omitempty"`
}
