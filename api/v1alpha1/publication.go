// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Names by which published objects are found.
const (
	// LabelPublish on an object of the host, with the value "true", marks it for each Publication of its resource that sets
	// no selector of its own.
	LabelPublish = "berth.dev/publish"
	// LabelPublication on a PublishedObject, and on the copies in spaces, names the Publication.
	LabelPublication = "berth.dev/publication"
	// LabelAggregateToPublisher on a ClusterRole of the host, with the value "true", gives its rights to the operator, so that
	// it may read the sources of Publications.
	LabelAggregateToPublisher = "berth.dev/aggregate-to-publisher"
	// AnnotationTenantLabels on a Space has the labels of its Tenant as JSON, for the fields of Publications. The operator
	// sets it.
	AnnotationTenantLabels = "berth.dev/tenant-labels"
)

// Reasons of the condition Ready of a Publication, besides ReasonInvalidSpec.
const (
	// ReasonPublished is that of Ready when it is True.
	ReasonPublished = "Published"
	// ReasonSourceForbidden makes Ready False if the operator has no right to read a source.
	ReasonSourceForbidden = "SourceForbidden"
	// ReasonUnknownKind makes Ready False if the host has no objects of the kind of a source.
	ReasonUnknownKind = "UnknownKind"
	// ReasonSourceUnavailable makes Ready False while a source can't be read.
	ReasonSourceUnavailable = "SourceUnavailable"
	// ReasonTooManyObjects makes Ready False if objects are left out because there are too many, or they are too large.
	ReasonTooManyObjects = "TooManyObjects"
	// ReasonObjectsLeftOut makes Ready False if objects are left out that must not be published.
	ReasonObjectsLeftOut = "ObjectsLeftOut"
	// ReasonFieldsFailed makes Ready False if a field can't be set in a copy.
	ReasonFieldsFailed = "FieldsFailed"
	// ReasonTooManyPublications makes Ready False if a space of a selected tenant has as many publications as it may have.
	ReasonTooManyPublications = "TooManyPublications"
)

// Publication copies objects of the host to spaces. The copies follow their sources, and users of the spaces can't change or
// delete them.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth,shortName=pub
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Objects",type=integer,JSONPath=`.status.objects`
// +kubebuilder:printcolumn:name="Spaces",type=integer,JSONPath=`.status.spaces`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name: the name of a publication may have at most 63 characters, because it is the value of a label"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.startsWith('share.')",message="metadata.name: names that begin with share. are those of what tenants share; choose another name"
type Publication struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says which objects are copied, and to which spaces.
	// +required
	Spec PublicationSpec `json:"spec,omitzero"`
	// status is what the operator observed. Only the operator writes it.
	// +optional
	Status PublicationStatus `json:"status,omitzero"`
}

// PublicationList is a list of publications.
//
// +kubebuilder:object:root=true
type PublicationList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Publication `json:"items"`
}

// PublicationSpec says which objects are copied, and to which spaces.
type PublicationSpec struct {
	// sources are the objects of the host that are copied.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Sources []PublicationSource `json:"sources,omitempty"`
	// tenants selects the tenants to whose spaces the objects are copied, by the labels of the Tenants. All are selected if it is
	// not set.
	// +optional
	Tenants *metav1.LabelSelector `json:"tenants,omitempty"`
	// namespaces says where copies are that are in a namespace: Same is the namespace of the source's name, if the space has it,
	// and Every is the namespace default, and each that the tenant made. Defaults to Same.
	// +optional
	// +default="Same"
	Namespaces PublicationNamespaces `json:"namespaces,omitempty"`
	// fields are set in each copy, after the source.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Fields []PublicationField `json:"fields,omitempty"`
}

// PublicationNamespaces says in which namespaces copies are.
//
// +kubebuilder:validation:Enum=Same;Every
type PublicationNamespaces string

// Namespaces of copies.
const (
	SameNamespace  PublicationNamespaces = "Same"
	EveryNamespace PublicationNamespaces = "Every"
)

// PublicationSource selects objects of the host.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.name) && has(self.selector))",message="set name or selector, not both"
type PublicationSource struct {
	// apiVersion is the group and version of the objects, such as networking.k8s.io/v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion,omitempty"`
	// kind is that of the objects, such as NetworkPolicy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// namespace is that of the objects. Objects of a kind that is in namespaces need it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// name is that of one object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// selector selects the objects by their labels. If neither this nor name is set, those with the label berth.dev/publish=true
	// are selected.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// PublicationField is a field that is set in each copy.
type PublicationField struct {
	// path is the path of the field in the object, such as data.tenant, spec.hard["requests.cpu"], or spec.rules[0].host, where
	// the index [*] stands for each element of a list. Of metadata, labels and annotations can be set. apiVersion, kind, and
	// status can't.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path,omitempty"`
	// expression is a CEL expression that returns the value; null removes the field. Its variables are tenant and space, which
	// have name and labels, object, which is the source, and value, which is what the field has before, or null. Labels of
	// tenant are those of the Tenant, and labels of space those of the Space. In a space without a tenant, the name of tenant is empty.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression,omitempty"`
}

// PublicationStatus is what the operator observed of a publication.
//
// +kubebuilder:validation:MinProperties=1
type PublicationStatus struct {
	// conditions has Ready. It is True if all sources could be read, and all of their objects are published.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// objects is the number of objects that are published.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Objects *int32 `json:"objects,omitempty"`
	// spaces is the number of spaces that the objects are copied to.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Spaces *int32 `json:"spaces,omitempty"`
}

// PublishedObject is one object of a Publication, as the operator read it. Platforms copy it to their spaces. Only the operator
// writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Publication",type=string,JSONPath=`.metadata.labels.berth\.dev/publication`
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.object.kind`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.object.metadata.namespace`
// +kubebuilder:printcolumn:name="Object",type=string,JSONPath=`.spec.object.metadata.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PublishedObject struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is the object.
	// +required
	Spec PublishedObjectSpec `json:"spec,omitzero"` //nolint:kubeapilinter // as of its object
}

// PublishedObjectList is a list of published objects.
//
// +kubebuilder:object:root=true
type PublishedObjectList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []PublishedObject `json:"items"`
}

// PublishedObjectSpec is one object of a Publication.
type PublishedObjectSpec struct {
	// object is the source, without its status and what the API server sets.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Object runtime.RawExtension `json:"object,omitzero"` //nolint:kubeapilinter // it has no fields by which the schema could say that it isn't empty
	// namespaces says where copies are, as in the Publication.
	// +optional
	Namespaces PublicationNamespaces `json:"namespaces,omitempty"`
	// fields are set in each copy, as in the Publication.
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=32
	Fields []PublicationField `json:"fields,omitempty"`
}
