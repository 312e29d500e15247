// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate/workloadidentity"
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
	// Counted are the devices and huge pages that pods may request, and the classes that resource claims may.
	Counted Counted
	// Claims says that resource claims are synced, so that pods may refer to them.
	Claims bool
	// Bandwidth bounds the bandwidth of each pod.
	Bandwidth PodBandwidth
	// WorkloadIdentity says which annotations of service accounts go to the host.
	WorkloadIdentity workloadidentity.Rules
}

// PodBandwidth bounds the bandwidth to and from each pod, in bits per second. The host's network plugin enforces it.
type PodBandwidth struct{ Ingress, Egress Bandwidth }

// Bandwidth bounds the bandwidth of each pod in one direction.
type Bandwidth struct {
	// Default is that of pods that set none. If it is nil, they have Max.
	Default *resource.Quantity
	// Max is the most that pods may set. If it is nil, they may set any.
	Max *resource.Quantity
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

// Priorities say which priorities a space's pods have on the host. The zero value means: those of all imported classes,
// and no preemption of other spaces' pods.
//
// The pods of all spaces share the host's scheduler, which preempts by the value alone, in all namespaces. So on nodes
// that spaces share, each pod of a space has a value of 0 or more, and one with more than 0 never preempts. Then a pod
// of a space preempts no pod of a space. A pod of the value 0 may still preempt pods of the host with negative values,
// as autoscalers run them to reserve capacity.
type Priorities struct {
	// Allowed are the names of the host's classes that the space imports. If it is empty, the space imports all that the
	// sync options select.
	Allowed []string
	// Default is the host's class of pods that have none there otherwise. If it is empty, it is that of the host.
	Default string
	// OwnNodes says that pods of no other tenant run on the space's nodes, so that its pods may preempt by priority.
	OwnNodes bool
}

// preempts is part of [Priorities.String] if the space has nodes of its own. It is not a valid name of a class.
const preempts = "preempts:own-nodes"

// String returns the form that the host's admission policies read, separated by commas: the names of the classes that
// pods may have, and whether they may preempt. If there are no names, pods may have all classes.
func (p Priorities) String() string {
	all := slices.Clone(p.Allowed)
	if len(all) > 0 && p.Default != "" {
		all = append(all, p.Default)
	}
	if p.OwnNodes {
		all = append(all, preempts)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// Imports reports whether the space imports a class of the host that the sync options select. It imports no class of the
// system, and none with which its pods would preempt those of other spaces, or be preempted by them.
func (p Priorities) Imports(class *schedulingv1.PriorityClass) bool {
	return !strings.HasPrefix(class.Name, "system-") && (len(p.Allowed) == 0 || slices.Contains(p.Allowed, class.Name)) && p.Spares(class)
}

// Spares reports whether pods of a class preempt no pods of other spaces, and aren't preempted by them. The host's
// admission policies require it of each pod.
func (p Priorities) Spares(class *schedulingv1.PriorityClass) bool {
	never := ptr.Deref(class.PreemptionPolicy, corev1.PreemptLowerPriority) == corev1.PreemptNever
	return p.OwnNodes || class.Value == 0 || class.Value > 0 && never
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
