// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Sleep says when a space is put to sleep.
//
// +kubebuilder:validation:MinProperties=1
type Sleep struct {
	// idleAfterSeconds is how long the space has to be idle; 0 keeps it awake. If it is not set, the platform's setting holds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=31536000
	IdleAfterSeconds *int32 `json:"idleAfterSeconds,omitempty"`
	// ignoredClients are clients whose requests don't keep the space awake.
	// +optional
	IgnoredClients Clients `json:"ignoredClients,omitzero"`
}

// Clients are clients of a space's API server.
//
// +kubebuilder:validation:MinProperties=1
type Clients struct {
	// userAgents are prefixes of User-Agent headers. If neither this nor the platform's configuration sets any, they are
	// those of Argo CD, Flux, and Prometheus: argocd-, helm-controller/, kustomize-controller/, and Prometheus/.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	UserAgents []string `json:"userAgents,omitempty"`
	// users are names of users of the space.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Users []string `json:"users,omitempty"`
	// groups are names of groups of the space.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Groups []string `json:"groups,omitempty"`
}
