// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// PodSecurity is what a space's pods may do on the host's nodes.
//
// +kubebuilder:validation:MinProperties=1
type PodSecurity struct {
	// level is the Pod Security Standard that the host enforces. If neither this nor the platform's configuration sets it, it
	// is baseline.
	// +optional
	// +kubebuilder:validation:Enum=baseline;restricted
	Level string `json:"level,omitempty"`
	// defaultSeccomp is the seccomp profile of pods that set none. If neither this nor the platform's configuration sets it,
	// it is RuntimeDefault.
	// +optional
	// +kubebuilder:validation:Enum=RuntimeDefault;Unconfined
	DefaultSeccomp corev1.SeccompProfileType `json:"defaultSeccomp,omitempty"`
	// runtimeClassName is the RuntimeClass of the host that all pods run with. Pods choose one themselves if it is not set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RuntimeClassName string `json:"runtimeClassName,omitempty"`
	// netRaw says whether containers have the capability NET_RAW, which programs such as ping use. If neither this nor the
	// platform's configuration sets it, it is Allowed.
	// +optional
	NetRaw Permission `json:"netRaw,omitempty"`
	// userNamespaces says whether each pod has a user namespace of its own (hostUsers: false), which the host's nodes have
	// to support. If neither this nor the platform's configuration sets it, it is Optional.
	// +optional
	// +kubebuilder:validation:Enum=Optional;Required
	UserNamespaces string `json:"userNamespaces,omitempty"`
	// hostProfiles says whether pods may name seccomp, AppArmor, and SELinux profiles of the host's nodes. If neither this nor
	// the platform's configuration sets it, it is Denied.
	// +optional
	HostProfiles Permission `json:"hostProfiles,omitempty"`
}

// Permission says whether something is allowed.
//
// +kubebuilder:validation:Enum=Allowed;Denied
type Permission string

// Permissions.
const (
	Allowed Permission = "Allowed"
	Denied  Permission = "Denied"
)
