// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/utils/ptr"
)

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
