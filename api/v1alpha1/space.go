// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Space is a Kubernetes API server of its own for a tenant, whose pods run on the cluster that holds this object.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=berth
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.spec.isolation`
// +kubebuilder:selectablefield:JSONPath=`.spec.platformName`
// +kubebuilder:selectablefield:JSONPath=`.spec.tenantName`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.usage.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.usage.memory`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=`.spec.tenantName`,priority=1
// +kubebuilder:printcolumn:name="Isolation",type=string,JSONPath=`.status.isolation`,priority=1
// +kubebuilder:printcolumn:name="Store",type=string,JSONPath=`.spec.store.type`,priority=1
// +kubebuilder:printcolumn:name="Platform",type=string,JSONPath=`.spec.platformName`,priority=1
// +kubebuilder:printcolumn:name="Paused",type=boolean,JSONPath=`.spec.paused`,priority=1
// +kubebuilder:printcolumn:name="Shard",type=string,JSONPath=`.status.shard`,priority=1
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,priority=1
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 57",message="metadata.name: the name of a space may have at most 57 characters, because the names of its objects on the host begin with it"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="metadata.name: the name of a space must not contain dots"
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['system', 'host'])",message="metadata.name: the names system and host are reserved"
type Space struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// spec is what the space is to be.
	// +optional
	// +default={"platformName":"berth"}
	Spec SpaceSpec `json:"spec,omitzero"`
	// status is what the platform observed. Only the platform writes it.
	// +optional
	Status SpaceStatus `json:"status,omitzero"`
}

// SpaceList is a list of spaces.
//
// +kubebuilder:object:root=true
type SpaceList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Space `json:"items"`
}

// SpaceSpec is what a space is to be. All of it may be changed while the space runs; a field that does not affect what
// exists already says so.
//
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.tenantName) || has(self.tenantName)",message="a space stays with its tenant; create another one without a tenant, and restore a snapshot as it"
// +kubebuilder:validation:XValidation:rule="(has(self.store) && has(self.store.type) ? self.store.type : 'SQLite') == (has(oldSelf.store) && has(oldSelf.store.type) ? oldSelf.store.type : 'SQLite')",message="the type of a store can't be changed; create another space with that type, and restore a snapshot as it"
// +kubebuilder:validation:XValidation:rule="!has(self.store) || !has(self.store.type) || self.store.type == 'SQLite' || !has(self.snapshots) || !has(self.snapshots.replication) || self.snapshots.replication == 'None'",message="a store in a database server can't be replicated by the platform; use the replication of the server, or the store type SQLite"
type SpaceSpec struct {
	// platformName is the name of the platform that serves the space, as its --platform-name says. Several platforms may share
	// a cluster. It can't be changed. Defaults to berth.
	// +optional
	// +default="berth"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a space stays with its platform; create another one there, and restore a snapshot as it"
	PlatformName string `json:"platformName,omitempty"`
	// tenantName is the name of the Tenant that the space belongs to. It can't be changed once it is set. The operator then sets
	// access, namespaces, publications, tenantLimits, and audit as the Tenant says.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=57
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a space stays with its tenant; create another one for the other tenant, and restore a snapshot as it"
	TenantName string `json:"tenantName,omitempty"`
	// isolation is Shared for a space that shares a process with others, and Dedicated for one with a process of its own.
	// Defaults to Shared. In a cluster, a space goes back to Shared only with the annotation berth.dev/trust-dedicated=true,
	// because its store comes from its pod.
	// +optional
	// +default="Shared"
	Isolation Isolation `json:"isolation,omitempty"`
	// dedicateAfterSeconds gives a Shared space a process of its own once it has taken more than its share of the shared
	// process's memory for this long: a tenth of the process's limit. It does not go back by itself. 0 never does so, and moves
	// back a space that has been moved for it; isolation stays as it is. If neither this nor the platform's configuration sets
	// it, it is 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DedicateAfterSeconds *int32 `json:"dedicateAfterSeconds,omitempty"`
	// paused keeps the platform from acting on changes of this object, other than those of tenantName, access, namespaces,
	// publications, tenantLimits, and audit. The space is left as it is: it serves, sleeps, and wakes. Defaults to false.
	// +optional
	Paused *bool `json:"paused,omitempty"`
	// store is where the space's objects are stored. Defaults to a SQLite file in the data directory of the platform.
	// +optional
	Store Store `json:"store,omitzero"`
	// kubernetesVersion is the minor version of Kubernetes that the space's API server serves, such as 1.36. Only shards that serve it get
	// the space. When it changes, the space moves, by one minor version at a time. Defaults to that of the shard that has the space.
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:Pattern=`^1\.[1-9][0-9]{0,3}$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// deletionPolicy says what becomes of the space's store when this object is deleted. Delete deletes it, Retain keeps it
	// on disk for a space of the same name, and Snapshot takes a last snapshot first, to where snapshots says. Host objects
	// are deleted in each case. Defaults to Delete.
	// +optional
	// +default="Delete"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// limits are how much of the process the space may use, such as watches: 500. The names and defaults are in the
	// reference of limits. A name that is not there, or a value that is not above zero, makes Ready False. A lower
	// limit removes nothing that the space has stored.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=64
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
	// tenantLimits are how much of the process all spaces of the tenant may use together. They take effect at once. What they don't name
	// is four times the default of one space.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=6
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['memory-bytes', 'watches', 'requests-reading', 'requests-writing', 'requests-long-running', 'request-rate'])",message="must be limits of a tenant: memory-bytes, watches, requests-reading, requests-writing, requests-long-running, or request-rate"
	TenantLimits map[string]resource.Quantity `json:"tenantLimits,omitempty"`
	// audit says what is recorded of the requests to the space, and where it is sent. It takes effect at once.
	// +optional
	Audit Audit `json:"audit,omitzero"`
	// sync says which resources are synced with the host. Resources that are not in the list are as the platform's
	// configuration says. A value may turn off a resource, or have less of it synced; it may have more synced only as far as
	// the platform's configuration allows. Any other value, or a resource that the reference of syncing does not name, makes
	// Ready False. Copies of what is turned off are deleted, but volumes and snapshots stay. Quote on and off: YAML has them
	// as booleans.
	// +optional
	// +listType=map
	// +listMapKey=resource
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Sync []SyncOption `json:"sync,omitempty"`
	// patches set fields of the pods that the space has on the host, such as the registry of their images. They are applied last:
	// first those of the platform's configuration, of which a patch here replaces the one of the same name, and then the others
	// here. What they make of a pod is subject to the same rules of the host as any pod of the space. A change
	// holds for new pods, and as far as the field can change also for those that run: another image restarts their containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Patches []SyncPatch `json:"patches,omitempty"`
	// quota is the hard limit of the ResourceQuota of the space's namespace on the host. A lower quota removes nothing
	// that is there already. Pods can't use extended resources, huge pages, and devices of DeviceClasses that it doesn't
	// name.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	Quota map[corev1.ResourceName]resource.Quantity `json:"quota,omitempty"`
	// scopedQuotas are further ResourceQuotas of the space's namespace on the host, each for a part of its pods. On the host,
	// their names are berth-NAME.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ScopedQuotas []ScopedQuota `json:"scopedQuotas,omitempty"`
	// limitRange are the limits of the LimitRange of the space's namespace on the host, at most one of each type. They hold
	// for pods and claims that are created later.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(limit, limit.type in ['Container', 'Pod', 'PersistentVolumeClaim'])",message="the type of a limit must be Container, Pod, or PersistentVolumeClaim"
	LimitRange []corev1.LimitRangeItem `json:"limitRange,omitempty"`
	// podSecurity is what the space's pods may do on the host's nodes. What is not set is as the platform's configuration
	// says. A change holds for pods that are created later.
	// +optional
	PodSecurity PodSecurity `json:"podSecurity,omitzero"`
	// workloadIdentity are the annotations of ServiceAccounts by which the space's pods have identities of a cloud, and the values
	// that they may have. The space needs the sync option serviceaccounts. Without workloadIdentity, no annotation of a
	// ServiceAccount is on the host.
	// +optional
	// +listType=map
	// +listMapKey=annotation
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	WorkloadIdentity []WorkloadIdentity `json:"workloadIdentity,omitempty"`
	// nodes are those of the host's nodes that the space's pods run on. A change holds for pods that are created later.
	// +optional
	Nodes Nodes `json:"nodes,omitzero"`
	// priority is which PriorityClasses of the host the space's pods have, and whether they preempt other pods. A change holds
	// for pods that are created later.
	// +optional
	Priority Priority `json:"priority,omitzero"`
	// network is what the space exposes, and what its pods reach.
	// +optional
	Network Network `json:"network,omitzero"`
	// sleep says when the space is put to sleep.
	// +optional
	Sleep Sleep `json:"sleep,omitzero"`
	// hostNamespace is metadata of the space's namespace on the host, such as a cost center.
	// +optional
	HostNamespace HostNamespace `json:"hostNamespace,omitzero"`
	// snapshots says where and how often to take snapshots of the space. What it doesn't set is as the platform's settings say.
	// +optional
	Snapshots Snapshots `json:"snapshots,omitzero"`
	// access says who owns the space, and what the owners may do in it. In a space of a tenant, the operator sets it.
	// +optional
	Access Access `json:"access,omitzero"`
	// namespaces is what the namespaces of the space have. In a space of a tenant, the operator sets it.
	// +optional
	Namespaces Namespaces `json:"namespaces,omitzero"`
	// publications are the names of the Publications whose objects are copied to the space. In a space of a tenant, the
	// operator sets it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Publications []string `json:"publications,omitempty"`
}

// Isolation says what a space shares with others.
//
// +kubebuilder:validation:Enum=Shared;Dedicated
type Isolation string

// Isolations.
const (
	Shared    Isolation = "Shared"
	Dedicated Isolation = "Dedicated"
)

// DeletionPolicy says what becomes of a deleted space's store.
//
// +kubebuilder:validation:Enum=Delete;Retain;Snapshot
type DeletionPolicy string

// Deletion policies.
const (
	DeletionDelete   DeletionPolicy = "Delete"
	DeletionRetain   DeletionPolicy = "Retain"
	DeletionSnapshot DeletionPolicy = "Snapshot"
)

// SyncOption says how a resource is synced.
type SyncOption struct {
	// resource is the plural name, such as ingresses.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource,omitempty"`
	// value is one of those that the reference of syncing names for the resource, such as "on", "off", or a label selector.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value,omitempty"`
}

// SyncPatch sets a field of pods on the host. Each has one field manager, so that a tenant's patch that is changed for one space stays as it
// is changed.
//
// +structType=atomic
type SyncPatch struct {
	// name is that of the patch, which tenants see if it can't be applied.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// resource is pods.
	// +required
	// +kubebuilder:validation:Enum=pods
	Resource string `json:"resource,omitempty"`
	// path is the path of the field in the pod, such as spec.containers[*].image, where [*] stands for each element of a list, or
	// spec.nodeSelector["example.com/pool"]. The reference of syncing says which fields can be set.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Path string `json:"path,omitempty"`
	// expression is a CEL expression that returns the value; null removes the field. Its variables are value, which is what the
	// field has before, or null, object, which is the pod in the space, and tenant.name and space.name. In a space without a
	// tenant, the name of tenant is empty.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression,omitempty"`
}

// Network is what a space exposes, and what its pods reach.
//
// +kubebuilder:validation:MinProperties=1
type Network struct {
	// allowedDomains are the domains that host names of Ingresses, Gateways, and routes must be in. Any are allowed if it is
	// not set.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	AllowedDomains []string `json:"allowedDomains,omitempty"`
	// closedRanges are address ranges, in CIDR form, that the space's pods must not reach, besides private and special ones
	// and those of the host's Services, pods, and nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="self.all(range, isCIDR(range) && cidr(range) == cidr(range).masked() && cidr(range).prefixLength() > 0)",message="must be address ranges such as 203.0.113.0/24 or 2001:db8::/32, without bits beyond their length"
	ClosedRanges []string `json:"closedRanges,omitempty"`
	// podBandwidth bounds the bandwidth of each pod, if the host's network plugin honors the annotations
	// kubernetes.io/ingress-bandwidth and kubernetes.io/egress-bandwidth. A change holds for pods that are created later.
	// +optional
	PodBandwidth PodBandwidth `json:"podBandwidth,omitzero"`
}

// HostNamespace is metadata of a space's namespace on the host.
//
// +kubebuilder:validation:MinProperties=1
type HostNamespace struct {
	// labels are those that the namespace has besides the ones that Berth sets.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, ['berth.dev/', 'kubernetes.io/', 'k8s.io/'].exists(domain, key.startsWith(domain) || key.contains('.' + domain)))",message="labels of berth.dev, kubernetes.io, and k8s.io are set by Berth and by Kubernetes"
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are those that the namespace has besides the ones that Berth sets.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="!self.exists(key, ['berth.dev/', 'kubernetes.io/', 'k8s.io/', 'x-k8s.io/'].exists(domain, key.startsWith(domain) || key.contains('.' + domain)))",message="annotations of berth.dev, kubernetes.io, k8s.io, and x-k8s.io are set by Berth and by Kubernetes"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Snapshots says where and how often to take snapshots.
//
// +kubebuilder:validation:MinProperties=1
type Snapshots struct {
	// to is the URL of a directory, such as file:///backups, or of object storage, such as s3://bucket/prefix. It must be one that
	// the platform allows, with --snapshot-to or --snapshot-also-to. Defaults to that of --snapshot-to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('file:///') || self.startsWith('s3://')",message="must begin with file:/// or s3://"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*//[^/]*@')",message="must not hold credentials: they come from the platform's environment"
	To string `json:"to,omitempty"`
	// intervalSeconds is how often to take a snapshot if the space has changed; 0 takes none on a schedule. If it is not set, the
	// platform's setting holds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	// +kubebuilder:validation:XValidation:rule="self == 0 || self >= 60",message="must be 0, or 60 or more"
	IntervalSeconds *int32 `json:"intervalSeconds,omitempty"`
	// keep is how many snapshots to keep; older ones are deleted when the next one is taken. If it is not set, the platform's
	// setting holds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	Keep int32 `json:"keep,omitempty"`
	// replication is Continuous for a copy of the store in the same place that is at most a second behind, as long as the place can be
	// reached, and None for no such copy. It is for spaces with a store of type SQLite. If it is not set, the platform's setting
	// holds, which is None unless its configuration says otherwise.
	// +optional
	Replication Replication `json:"replication,omitempty"`
}

// Replication says how a store is copied beside its snapshots.
//
// +kubebuilder:validation:Enum=None;Continuous
type Replication string

// Replications.
const (
	ReplicationNone       Replication = "None"
	ReplicationContinuous Replication = "Continuous"
)
