// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Types of a space's conditions. The message of one that is not as it should be names the remedy.
const (
	// ConditionReady is True for a space that serves requests, or that sleeps and would.
	ConditionReady = "Ready"
	// ConditionHostReachable is False while the platform can't reach the host's API server for the space.
	ConditionHostReachable = "HostReachable"
	// ConditionStoreHealthy is False for a space whose store is damaged or full.
	ConditionStoreHealthy = "StoreHealthy"
	// ConditionSynced is False while objects of the space are refused by the host.
	ConditionSynced = "Synced"
	// ConditionIsolated is False while the objects that isolate the space on the host are changed by somebody again and again, or
	// can't be put back. It is not there before that happens for the first time.
	ConditionIsolated = "Isolated"
	// ConditionWithinShare is False while a space with dedicateAfterSeconds takes more than its share of the shared process's
	// memory. It is not there for other spaces.
	ConditionWithinShare = "WithinShare"
	// ConditionVolumeCurrent is False for a dedicated space whose volume differs from what the platform's configuration says now. There
	// is no such condition otherwise.
	ConditionVolumeCurrent = "VolumeCurrent"
	// ConditionReplicated is False while the replica of a space's store lacks writes of the last seconds. It is not there for a space
	// without replication.
	ConditionReplicated = "Replicated"
)

// Reasons of the condition Ready. If none of these is the reason, it is the name of the state.
const (
	// ReasonInvalidSpec makes Ready False for a space with a field that means nothing to the platform. The message names
	// the field. A space that ran before goes on as it was.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonOrphanedStore makes Ready False for a space of the name of an earlier one whose object was removed by force, so
	// that its store is still there. The message says how to choose between the two.
	ReasonOrphanedStore = "OrphanedStore"
	// ReasonPaused makes Ready False for a space that was paused before it was ever started.
	ReasonPaused = "Paused"
	// ReasonCrashSuspect makes Ready False for a space that was active when its process ended uncleanly, until it is started
	// again.
	ReasonCrashSuspect = "CrashSuspect"
	// ReasonHostUnreachable leaves Ready True for a space that serves, and syncs once the host is reachable.
	ReasonHostUnreachable = "HostUnreachable"
)

// Reasons of the other conditions. While a space sleeps, these conditions are as they were last.
const (
	// ReasonReachable is that of HostReachable when it is True.
	ReasonReachable = "Reachable"
	// ReasonUnreachable is that of HostReachable when it is False, of StoreHealthy when it is False because the database of the store
	// can't be used, and of Replicated when it is False because the place of the replica can't be reached.
	ReasonUnreachable = "Unreachable"
	// ReasonStoreMissing makes Ready False for a space whose store is not in the volume of its shard.
	ReasonStoreMissing = "StoreMissing"
	// ReasonNotMoved is that of the event of a space that can't move to another shard.
	ReasonNotMoved = "NotMoved"
	// ReasonSnapshotNotLoaded is that of the event of a space that another shard got before its shard had loaded a snapshot that was restored.
	ReasonSnapshotNotLoaded = "SnapshotNotLoaded"
	// ReasonHealthy is that of StoreHealthy when it is True.
	ReasonHealthy = "Healthy"
	// ReasonStoreTakenOver is that of StoreHealthy when it is False because another process has opened the store in the database
	// server, and of Replicated when another process replicates the space.
	ReasonStoreTakenOver = "TakenOver"
	// ReasonStoreFull is that of StoreHealthy when it is False for a store that has reached its limit.
	ReasonStoreFull = "Full"
	// ReasonStoreDamaged is that of StoreHealthy when it is False for a store that can't be read.
	ReasonStoreDamaged = "Damaged"
	// ReasonSynced is that of Synced when it is True.
	ReasonSynced = "Synced"
	// ReasonRejectedByHost is that of Synced when it is False.
	ReasonRejectedByHost = "RejectedByHost"
	// ReasonIsolated is that of Isolated when it is True.
	ReasonIsolated = "Isolated"
	// ReasonContested is that of Isolated when it is False because somebody changes the objects again and again.
	ReasonContested = "Contested"
	// ReasonNotRepaired is that of Isolated when it is False because the objects can't be put back.
	ReasonNotRepaired = "NotRepaired"
	// ReasonWithinShare is that of WithinShare when it is True for a space that shares a process.
	ReasonWithinShare = "WithinShare"
	// ReasonDedicated is that of WithinShare when it is True for a space that has outgrown its share, and has been moved to a
	// process of its own.
	ReasonDedicated = "Dedicated"
	// ReasonOverShare is that of WithinShare when it is False, and not yet for long enough to move the space.
	ReasonOverShare = "OverShare"
	// ReasonOutgrown is that of WithinShare when it is False for a space that is being moved, and that of the event.
	ReasonOutgrown = "Outgrown"
	// ReasonDedicatedLimit is that of WithinShare when it is False for a space that can't be moved, because there are as many
	// dedicated spaces as the platform allows.
	ReasonDedicatedLimit = "DedicatedLimit"
	// ReasonNoMemoryLimit is that of WithinShare when it is Unknown, because the platform's process has no memory limit.
	ReasonNoMemoryLimit = "NoMemoryLimit"
	// ReasonOwnersLimited is that of an event of a space with more owners than get a kubeconfig in a Secret.
	ReasonOwnersLimited = "OwnersLimited"
	// ReasonQuotaExceeded is of an event about a space that a quota refused something.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonNoShard is of an event about a space that no shard can take.
	ReasonNoShard = "NoShard"
	// ReasonMoving is of an event about a space that begins to move to another shard.
	ReasonMoving = "Moving"
	// ReasonFailedOver is of an event about a space that another shard serves, because its shard is dead.
	ReasonFailedOver = "FailedOver"
	// ReasonMoveRefused is of an event about a space that can't move to another shard.
	ReasonMoveRefused = "MoveRefused"
	// ReasonUpToDate is that of Replicated when it is True.
	ReasonUpToDate = "UpToDate"
	// ReasonBehind is that of Replicated when it is False while the replica catches up, or is made.
	ReasonBehind = "Behind"
	// ReasonStoreBehindReplica is that of Replicated when it is False because the replica has writes that the store doesn't have.
	ReasonStoreBehindReplica = "StoreBehindReplica"
	// ReasonTemplateChanged is that of VolumeCurrent.
	ReasonTemplateChanged = "TemplateChanged"
)

// SpaceState is what a space does. A client must accept states that it does not know: later versions may have more.
//
// +kubebuilder:validation:Enum=Pending;Starting;Running;Stopping;Asleep;Waking;Failed;Deleting
type SpaceState string

// States of a space.
const (
	// SpacePending is that of a space whose namespace, isolation, and credentials the platform prepares.
	SpacePending SpaceState = "Pending"
	// SpaceStarting is that of a space that starts for the first time since the platform started.
	SpaceStarting SpaceState = "Starting"
	// SpaceRunning is that of a space that serves requests.
	SpaceRunning SpaceState = "Running"
	// SpaceStopping is that of a space that is being put to sleep.
	SpaceStopping SpaceState = "Stopping"
	// SpaceAsleep is that of a space of which only the store is left. A request wakes it.
	SpaceAsleep SpaceState = "Asleep"
	// SpaceWaking is that of a space that starts after it slept.
	SpaceWaking SpaceState = "Waking"
	// SpaceFailed is that of a space that did not start or has stopped by itself. It is tried again.
	SpaceFailed SpaceState = "Failed"
	// SpaceDeleting is that of a space whose host objects and store are being deleted.
	SpaceDeleting SpaceState = "Deleting"
)

// SpaceStatus is what the platform observed of a space.
//
// +kubebuilder:validation:MinProperties=1
type SpaceStatus struct {
	// conditions are Ready, HostReachable, StoreHealthy, Synced, Isolated, WithinShare, VolumeCurrent, and Replicated.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the space runs with.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// state is what the space does now. The condition Ready says whether it is as it should be, and why not. Later versions
	// may have more states.
	// +optional
	State SpaceState `json:"state,omitempty"`
	// isolation is what the space runs with: that of the spec, or Dedicated for a Shared space that has outgrown its share.
	// +optional
	Isolation Isolation `json:"isolation,omitempty"`
	// shard is the name of the shard that has the space's store, and serves the space. It is empty on a platform without shards.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Shard string `json:"shard,omitempty"`
	// movingTo is the name of the shard that the space moves to, or is to move to.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	MovingTo string `json:"movingTo,omitempty"`
	// moves is how often the space has moved between shards. The store with this number is the one that counts.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Moves *int64 `json:"moves,omitempty"`
	// replication is what the replica of the store has. It is written when the condition Replicated changes, and at most once a minute
	// otherwise, so that the replica may have more.
	// +optional
	Replication ReplicationStatus `json:"replication,omitzero"`
	// endpoint is the URL of the space's API.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Endpoint string `json:"endpoint,omitempty"`
	// version is the Kubernetes version of the space.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version,omitempty"`
	// quota is what the space uses of its quota on the host.
	// +optional
	Quota QuotaStatus `json:"quota,omitzero"`
	// usage is a summary of quota, as kubectl get prints it. Programs read quota.
	// +optional
	Usage Usage `json:"usage,omitzero"`
	// namespaces are the names of the space's namespaces that spec.namespaces is about, at most the first 500 of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`
	// namespaceCount is the number of these namespaces.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NamespaceCount *int32 `json:"namespaceCount,omitempty"`
}

// QuotaStatus is what a space may use, and uses.
//
// +kubebuilder:validation:MinProperties=1
type QuotaStatus struct {
	// hard is how much of each resource the space may use at most: its own quota or that of its tenant, whichever is lower. Other
	// spaces of the tenant use of the same quota.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Hard map[corev1.ResourceName]resource.Quantity `json:"hard,omitempty"`
	// used is how much of each resource in hard the space uses.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=200
	Used map[corev1.ResourceName]resource.Quantity `json:"used,omitempty"`
}

// Usage is a summary of what a space uses of its quota: "USED/LIMIT", or "USED" if there is no limit.
//
// +kubebuilder:validation:MinProperties=1
type Usage struct {
	// cpu is CPU, such as 500m/8: limits.cpu of the quota, or requests.cpu if it has no limits.cpu.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CPU string `json:"cpu,omitempty"`
	// memory is memory, such as 1Gi/16Gi: limits.memory of the quota, or requests.memory if it has no limits.memory.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Memory string `json:"memory,omitempty"`
}

// ReplicationStatus is what the replica of a store has.
//
// +kubebuilder:validation:MinProperties=1
type ReplicationStatus struct {
	// revision is that of the last write in the replica.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`
	// time is when this was the last write to the store.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// behindSince is when the first write was made that is not in the replica. It is not set if there is none.
	// +optional
	BehindSince *metav1.Time `json:"behindSince,omitempty"`
	// missingWrites is how many writes are not in the replica.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MissingWrites int64 `json:"missingWrites,omitempty"`
}
