// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the condition Ready of a ResourceSync, besides InvalidSpec and those of a CRDShare.
const (
	// ReasonSyncing is that of Ready when it is True.
	ReasonSyncing = "Syncing"
	// ReasonNotShared makes Ready False while no CRDShare forces the definition on spaces.
	ReasonNotShared = "DefinitionNotShared"
	// ReasonPolicyMissing makes Ready False while the host doesn't have the rights and the policy of the sync.
	ReasonPolicyMissing = "PolicyMissing"
	// ReasonHostUnavailable makes Ready False while the host's objects can't be read.
	ReasonHostUnavailable = "HostUnavailable"
)

// ResourceSync syncs the objects of a custom resource between spaces and the host. Its name is that of the resource's
// CustomResourceDefinition on the host, such as certificates.cert-manager.io. A CRDShare of the same name, with mode Forced, has to share
// the definition with the same tenants, so that both sides have the same. Only the fields that are listed here are copied.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Direction",type=string,JSONPath=`.spec.direction`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type ResourceSync struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec says what is synced, for whom, and how.
	// +required
	Spec ResourceSyncSpec `json:"spec,omitzero"`
	// status is what the platform observed. Only the platform writes it.
	// +optional
	Status ResourceSyncStatus `json:"status,omitzero"`
}

// ResourceSyncSpec says what is synced, for whom, and how.
//
// +kubebuilder:validation:XValidation:rule="self.direction == 'ToHost' || !has(self.maxObjects)",message="maxObjects is only for direction ToHost; set a selector to show fewer objects"
// +kubebuilder:validation:XValidation:rule="self.direction == 'FromHost' || !has(self.selector)",message="selector is only for direction FromHost; the objects of tenants are all synced"
// +kubebuilder:validation:XValidation:rule="self.direction == 'ToHost' || !has(self.fields) || self.fields.all(f, !has(f.type) && !has(f.rule))",message="type and rule are only for direction ToHost; objects of the host are shown as they are"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.fields) || !oldSelf.fields.exists(f, has(f.resource) && f.resource == 'services') || has(self.fields) && self.fields.exists(f, has(f.resource) && f.resource == 'services')",message="objects on the host may name Services, and are deleted with the ResourceSync; delete it, and create it without such fields"
type ResourceSyncSpec struct {
	// direction is ToHost if objects that tenants create in their spaces are created on the host, and FromHost if spaces show objects of
	// the host. Resources that are synced ToHost have to be namespaced, and those FromHost cluster-scoped.
	// +required
	Direction ResourceSyncDirection `json:"direction,omitempty"`
	// version is the version of the resource that is read and written, on both sides. The definition has to serve it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`
	Version string `json:"version,omitempty"`
	// tenants select the tenants for whose spaces the objects are synced, as those of a CRDShare do. If they are not set, nothing is synced.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Tenants []CRDShareTenants `json:"tenants,omitempty"`
	// selector selects the objects of the host that spaces show, by their labels. An empty one selects all; if it is not set, those with the
	// label berth.dev/show=true are shown.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// maxObjects is how many objects each space may have on the host. The default is 100.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	MaxObjects int32 `json:"maxObjects,omitempty"`
	// fields are what is copied of an object, beside its name. An object of a tenant that sets another field is refused. Of an object of the
	// host, other fields are left out.
	// +required
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=128
	Fields []SyncedField `json:"fields,omitempty"`
	// status lists what is copied from the status of an object of the host to that in the space, as paths that begin with status. Words in it
	// go to the tenant as they are, except for the object's name and namespace on the host.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	// +kubebuilder:validation:items:Pattern=`^status(\.[A-Za-z_][A-Za-z0-9_]*)+$`
	Status []string `json:"status,omitempty"`
}

// ResourceSyncDirection says on which side objects originate.
//
// +kubebuilder:validation:Enum=ToHost;FromHost
type ResourceSyncDirection string

// Directions of a ResourceSync.
const (
	// SyncToHost creates objects of tenants on the host.
	SyncToHost ResourceSyncDirection = "ToHost"
	// SyncFromHost shows objects of the host in spaces.
	SyncFromHost ResourceSyncDirection = "FromHost"
)

// SyncedField is a field that is copied.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type == 'Value' || !has(self.rule)",message="rule is only for fields of type Value; names are checked by their type"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'Imported' || has(self.resource)",message="resource is required for type Imported"
// +kubebuilder:validation:XValidation:rule="!has(self.resource) || has(self.type) && (self.type == 'Imported' || self.type == 'Object')",message="resource is only for types Imported and Object"
type SyncedField struct {
	// path is where the field is, with dots between names, and [*] after the name of a list for each of its items:
	// spec.rules[*].backendRefs[*].name. What is below the field is copied with it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*(\[\*\])?(\.[A-Za-z_][A-Za-z0-9_]*(\[\*\])?)*$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(apiVersion|kind|metadata|status)([^A-Za-z0-9_]|$)')",message="metadata and status are not copied with fields; list what returns of the status in status"
	Path string `json:"path,omitempty"`
	// type says what the field is. The default is Value.
	// +optional
	Type SyncedFieldType `json:"type,omitempty"`
	// resource is whose objects a field of type Imported names: the name of a ResourceSync with direction FromHost, such as
	// clusterissuers.cert-manager.io. For a field of type Object, it is services or gateways.gateway.networking.k8s.io; if it is not set, the
	// field names an object of the same resource.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Resource string `json:"resource,omitempty"`
	// rule is a CEL expression about a field of type Value, which is self in it. It is true for the values that tenants may set. The host
	// enforces it, too. A field that isn't set has no value, and is allowed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Rule string `json:"rule,omitempty"`
}

// SyncedFieldType says what a field is.
//
// +kubebuilder:validation:Enum=Value;Object;Selector;ReturnedSecret;Imported
type SyncedFieldType string

// Types of fields.
const (
	// FieldValue is copied as it is.
	FieldValue SyncedFieldType = "Value"
	// FieldObject is the name of another object of the same namespace. A Service that is named must select pods, as one of an Ingress must.
	FieldObject SyncedFieldType = "Object"
	// FieldSelector is a label selector of pods, which selects only pods of the same namespace of the space on the host.
	FieldSelector SyncedFieldType = "Selector"
	// FieldReturnedSecret is the name of a Secret that a controller of the host writes. Its data are copied to the Secret of the name in the space.
	FieldReturnedSecret SyncedFieldType = "ReturnedSecret"
	// FieldImported is the name of an object of the host that the space shows.
	FieldImported SyncedFieldType = "Imported"
)

// ResourceSyncStatus is what the platform observed of a sync.
//
// +kubebuilder:validation:MinProperties=1
type ResourceSyncStatus struct {
	// conditions has Ready. It is True if the objects of the selected tenants' spaces are synced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ResourceSyncList is a list of syncs.
//
// +kubebuilder:object:root=true
type ResourceSyncList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []ResourceSync `json:"items"`
}
