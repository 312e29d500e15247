// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/pod-security-admission/api"
)

// Settings are an admin's settings for a space's objects on the host. The zero value means the defaults.
type Settings struct {
	// PodSecurity restricts what the space's pods may do on the host's nodes.
	PodSecurity PodSecurity
	// ShowNodeAddresses syncs the addresses of nodes in the statuses of services, ingresses, and gateways, for hosts
	// whose controllers publish them on purpose.
	ShowNodeAddresses bool
	// ReservedLabels are keys of pod labels, in addition to [DefaultReservedLabels], that are renamed on the host. An
	// entry that ends in a dot is a prefix of keys, an entry with a slash is one key, and any other entry is a domain
	// with its subdomains.
	ReservedLabels []string
	// Domains are the domains in which the host names of the space's ingresses, gateways, and routes must be, such as
	// "example.com". If there are none, all host names are allowed.
	Domains []string
	// Priorities are the priorities of the space's pods on the host.
	Priorities Priorities
	// DefaultLimits are the limits of containers that set none. Nil means [DefaultLimits].
	DefaultLimits corev1.ResourceList
}

// PodSecurityLevel is the Pod Security Standard that every pod of a tenant must meet, in addition to [PodSecurity]. The
// space checks it, and so does the host, by the label on the host namespace.
const PodSecurityLevel = api.LevelBaseline

// PodSecurity restricts what a space's pods may do on the host's nodes, in addition to what pods of no space may do.
// The zero value means the defaults.
type PodSecurity struct {
	// Level is a level of the Pod Security Standards: restricted, or [PodSecurityLevel] if it is empty.
	Level api.Level
	// Seccomp is the profile type of pods that set none; RuntimeDefault if it is empty. With Unconfined, they have no
	// profile, as by default in Kubernetes.
	Seccomp corev1.SeccompProfileType
	// RuntimeClass is the class of the host with which all pods run. If it is empty, tenants choose among the imported
	// ones.
	RuntimeClass string
	// UserNamespaces runs all pods in user namespaces, so that root in a container has no rights on its node.
	UserNamespaces bool
	// DropNetRaw removes the capability NET_RAW from all containers. With it, a process can impersonate other pods on
	// networks that don't check senders.
	DropNetRaw bool
	// HostProfiles allows tenants to use seccomp and AppArmor profiles that are files on the host's nodes, and SELinux
	// labels.
	HostProfiles bool
}

// DefaultLimits returns the limits of containers that set none, unless [Settings] has others. The LimitRange of the
// host namespace has the same limits, because a quota counts only resources with limits.
func DefaultLimits() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
	}
}

// Limits returns the limits of containers that set none.
func (s *Settings) Limits() corev1.ResourceList {
	if s.DefaultLimits != nil {
		return s.DefaultLimits
	}
	return DefaultLimits()
}
