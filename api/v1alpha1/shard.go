// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shard is one process of a platform, with the spaces that it has. Each pod of the chart's StatefulSet is a shard. The process
// creates its object, in the namespace of the platform, and writes its status. Its Lease, of the same name, says whether it is alive.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=berth
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Spaces",type=integer,JSONPath=`.status.spaces`
// +kubebuilder:printcolumn:name="Awake",type=integer,JSONPath=`.status.awake`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.memory`
// +kubebuilder:printcolumn:name="Unschedulable",type=boolean,JSONPath=`.spec.unschedulable`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Memory-Limit",type=string,JSONPath=`.status.memoryLimit`,priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.status.kubernetesVersion`,priority=1
// +kubebuilder:printcolumn:name="Space-Selector",type=string,JSONPath=`.status.spaceSelector`,priority=1
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.address`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
type Shard struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the shard is to do.
	// +optional
	// +default={"platformName":"berth"}
	Spec ShardSpec `json:"spec,omitzero"`
	// status is what the shard says of itself.
	// +optional
	Status ShardStatus `json:"status,omitzero"`
}

// ShardSpec is what a shard is to do.
//
// +kubebuilder:validation:MinProperties=1
type ShardSpec struct {
	// platformName is the name of the platform that the shard is part of. Defaults to berth.
	// +optional
	// +default="berth"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a shard stays with its platform"
	PlatformName string `json:"platformName,omitempty"`
	// unschedulable says that the shard gets no more spaces. It keeps those that it has.
	// +optional
	Unschedulable *bool `json:"unschedulable,omitempty"`
	// drain says that the shard gets no more spaces, and that those that it has move to other shards, one after the other.
	// +optional
	Drain *bool `json:"drain,omitempty"`
}

// ShardStatus is what a shard says of itself.
//
// +kubebuilder:validation:MinProperties=1
type ShardStatus struct {
	// conditions are Ready, which says that the shard serves requests, and Draining, which says that its process is about to stop, and that
	// its spaces move to other shards before.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// address is HOST:PORT at which other shards reach it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262
	Address string `json:"address,omitempty"`
	// zone is the zone of the shard's node, such as eu-west-1a, over which the spaces of a tenant are spread. The label
	// topology.kubernetes.io/zone of the object takes precedence.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// version is the version of Berth.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// kubernetesVersion is the version of Kubernetes that the shard's spaces serve, such as v1.37.1, or v1.36 if they emulate an earlier
	// minor version.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// spaceSelector selects the spaces that the shard gets, by their labels, such as stage=canary. Spaces that it selects get such a shard,
	// and no other. If it is missing, the shard gets the spaces that no shard selects. For it, a space with spec.kubernetesVersion has the
	// label berth.dev/kubernetes-version.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	SpaceSelector string `json:"spaceSelector,omitempty"`
	// spaces is the number of spaces that the shard has, and awake that of those that don't sleep.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Spaces *int32 `json:"spaces,omitempty"`
	// awake is the number of spaces that don't sleep.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Awake *int32 `json:"awake,omitempty"`
	// dedicatedMax is how many dedicated spaces the shard may have. If it is missing, they run on the machine of the shard, or its version of
	// Berth is too old: then these spaces don't move to other shards.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DedicatedMax *int32 `json:"dedicatedMax,omitempty"`
	// retained are the names of deleted spaces whose stores the shard retains. A new space of such a name gets this shard.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Retained []string `json:"retained,omitempty"`
	// memory is how much memory the process takes, and memoryLimit how much it may take. It is missing if there is no limit.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
	// memoryLimit is how much memory the process may take.
	// +optional
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
}

// ConditionDraining is True for a shard whose process is about to stop, and whose spaces move to other shards before.
const ConditionDraining = "Draining"

// ShardList is a list of shards.
//
// +kubebuilder:object:root=true
type ShardList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Shard `json:"items"`
}
