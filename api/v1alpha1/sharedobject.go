// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names by which tenants share objects with the tenants below.
const (
	// LabelShare on an object in a space shares it with the spaces of the tenants below. Only owners of the tenant set it.
	LabelShare = "berth.dev/share"
	// ShareChildren is the value of LabelShare that shares with the tenants directly below.
	ShareChildren = "children"
	// ShareDescendants is the value of LabelShare that shares with all tenants below.
	ShareDescendants = "descendants"
	// LabelSharedBy on a PublishedObject names the Space that shares it.
	LabelSharedBy = "berth.dev/shared-by"
	// AnnotationInheritsFrom on a Space has the names of the tenants above whose rights its tenant inherits, the nearest first,
	// with commas between them. The operator sets it.
	AnnotationInheritsFrom = "berth.dev/inherits-from"
)

// Reasons of events about a Space that shares objects, or receives them.
const (
	// ReasonSharesLeftOut is that of an event about objects that the space shares and nobody receives.
	ReasonSharesLeftOut = "SharesLeftOut"
)

// SharedObject is an object of a space that its tenant shares with the tenants below. The process that runs the space writes it to
// the space's namespace on the host. The operator checks it, and publishes it to the spaces that receive it. The names limit how many
// a space can have.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=`.spec.scope`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.object.kind`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.object.metadata.namespace`
// +kubebuilder:printcolumn:name="Object",type=string,JSONPath=`.spec.object.metadata.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^shared-[0-9a-f]{2}$')",message="metadata.name: the name is shared- and two digits of 0 to f, because a space shares at most 256 objects"
type SharedObject struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the object.
	// +required
	Spec SharedObjectSpec `json:"spec,omitzero"`
}

// SharedObjectList is a list of shared objects.
//
// +kubebuilder:object:root=true
type SharedObjectList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []SharedObject `json:"items"`
}

// SharedObjectSpec is one object that a tenant shares.
type SharedObjectSpec struct {
	// object is the source, without its status and what the space's API server sets.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Object runtime.RawExtension `json:"object,omitzero"` //nolint:kubeapilinter // as of a PublishedObject
	// scope says which tenants receive the object: Children are those directly below, and Descendants are all below. A private
	// tenant, and those below it, receive nothing.
	// +required
	Scope ShareScope `json:"scope,omitempty"`
}

// ShareScope says which tenants receive an object.
//
// +kubebuilder:validation:Enum=Children;Descendants
type ShareScope string

// Tenants that receive an object.
const (
	ScopeChildren    ShareScope = "Children"
	ScopeDescendants ShareScope = "Descendants"
)
