// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
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
)

// SpaceStatus is what the platform observed of a space.
//
// +kubebuilder:validation:MinProperties=1
type SpaceStatus struct {
	// conditions are Ready, HostReachable, StoreHealthy, and Synced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation of the spec that the space runs with.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// state is what the space does now, such as Running or Asleep. Ready says whether it is as it should be.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	State string `json:"state,omitempty"`
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
	// usage is what the space uses of its quota on the host.
	// +optional
	Usage Usage `json:"usage,omitzero"`
}

// Usage is what a space uses of its quota: for each resource "USED/LIMIT", or "USED" if it has no limit.
//
// +kubebuilder:validation:MinProperties=1
type Usage struct {
	// cpu is requested and limited CPU.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	CPU string `json:"cpu,omitempty"`
	// memory is requested and limited memory.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Memory string `json:"memory,omitempty"`
}
