// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/pod-security-admission/api"
)

// Settings are what the platform's admin may decide about a space's objects on the
// host. The zero value is the defaults.
type Settings struct {
	// PodSecurity is how much the space's pods may do on the host's nodes.
	PodSecurity PodSecurity
	// ShowNodeAddresses passes on the addresses of nodes in the statuses of services,
	// ingresses and gateways, for hosts whose controllers publish them on purpose.
	ShowNodeAddresses bool
	// ReservedLabels are keys of pods' labels, besides [DefaultReservedLabels], that
	// stay off the host under their own names. One that ends in a dot stands for all
	// keys that begin with it, one with a slash for itself, and any other is a domain,
	// with all below it.
	ReservedLabels []string
	// Domains are those that the host names of the space's ingresses, gateways and
	// routes must be in, or equal: "example.com". Any if there are none.
	Domains []string
	// DefaultLimits are those that the host gives a container without limits: [DefaultLimits] if nil.
	DefaultLimits corev1.ResourceList
}

// PodSecurityLevel is the Pod Security Standard that every tenant pod meets, whatever
// [PodSecurity] asks beyond it: it is checked here, in the space, and again by the label on the host namespace.
const PodSecurityLevel = api.LevelBaseline

// PodSecurity is how much a space's pods may do on the host's nodes, on top of what
// pods of all spaces may not ask for. The zero value is the defaults.
type PodSecurity struct {
	// Level of the Pod Security Standards: [PodSecurityLevel] if empty, or restricted.
	Level api.Level
	// Seccomp is the profile type of pods that set none: RuntimeDefault if empty.
	// Unconfined leaves them without one, as Kubernetes does by default.
	Seccomp corev1.SeccompProfileType
	// RuntimeClass of the host's that all pods run with; "" lets tenants choose among
	// those that they are shown.
	RuntimeClass string
	// UserNamespaces has all pods run in a user namespace, so that root in a container
	// is nobody on its node.
	UserNamespaces bool
	// DropNetRaw takes the capability NET_RAW from all containers. With it, a process
	// can pretend to be another pod on networks that do not check senders.
	DropNetRaw bool
	// HostProfiles lets tenants name seccomp and AppArmor profiles that are files on
	// the host's nodes, and SELinux labels.
	HostProfiles bool
}

// DefaultLimits are what a container may use that sets no limit of its own, if [Settings] say nothing else. The LimitRange of
// the host namespace says the same: a quota counts only what is limited.
func DefaultLimits() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
	}
}

// Limits are the limits of containers that have none.
func (s *Settings) Limits() corev1.ResourceList {
	if s.DefaultLimits != nil {
		return s.DefaultLimits
	}
	return DefaultLimits()
}
