// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PullPodStatus is the status of v as the host pod tells it: what containers
// do, with nodes and their addresses hidden (N1, N2). Conditions that only the
// space knows stay as they are.
func (s Space) PullPodStatus(v, host *corev1.Pod) corev1.PodStatus {
	h := host.DeepCopy()
	scrubber := s.podScrubber(v, host)
	scrub := scrubber.scrub
	out := corev1.PodStatus{
		Phase:                      h.Status.Phase,
		Message:                    scrub(h.Status.Message),
		Reason:                     h.Status.Reason,
		PodIP:                      h.Status.PodIP,
		PodIPs:                     h.Status.PodIPs,
		StartTime:                  h.Status.StartTime,
		QOSClass:                   v.Status.QOSClass,
		NominatedNodeName:          s.PseudoNode(h.Status.NominatedNodeName),
		InitContainerStatuses:      scrubContainers(h.Status.InitContainerStatuses, scrubber),
		ContainerStatuses:          scrubContainers(h.Status.ContainerStatuses, scrubber),
		EphemeralContainerStatuses: scrubContainers(h.Status.EphemeralContainerStatuses, scrubber),
		Resources:                  h.Status.Resources,
		AllocatedResources:         h.Status.AllocatedResources,
	}
	if out.QOSClass == "" {
		out.QOSClass = h.Status.QOSClass
	}
	if h.Status.ObservedGeneration == h.Generation {
		out.ObservedGeneration = v.Generation
	} else {
		out.ObservedGeneration = v.Status.ObservedGeneration
	}
	out.Conditions = pullConditions(v, h, scrub)
	return out
}

func pullConditions(v, host *corev1.Pod, scrub func(string) string) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, c := range host.Status.Conditions {
		if !hostCondition(c.Type) {
			continue
		}
		c.Message = scrub(c.Message)
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue && c.Message != "" {
			c.Message = SchedulingReason(c.Message)
		}
		if c.Type == corev1.PodReady {
			gate(&c, v)
		}
		c.ObservedGeneration = 0
		out = append(out, c)
	}
	for _, c := range v.Status.Conditions {
		if !slices.ContainsFunc(out, func(o corev1.PodCondition) bool { return o.Type == c.Type }) && ownCondition(v, c.Type) {
			out = append(out, c)
		}
	}
	return out
}

// hostCondition reports whether Kubernetes itself sets a condition on the host.
// Those of others are about the host, and may pose as a tenant's readiness gate.
func hostCondition(t corev1.PodConditionType) bool {
	switch t {
	case corev1.PodScheduled, corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.ContainersReady, corev1.PodReady,
		corev1.DisruptionTarget, corev1.PodResizePending, corev1.PodResizeInProgress, corev1.AllContainersRestarting:
		return true
	default:
		return false
	}
}

// ownCondition reports whether the space, not the host, sets a condition: those
// of readiness gates and of the disruption controller.
func ownCondition(v *corev1.Pod, t corev1.PodConditionType) bool {
	return t == corev1.DisruptionTarget || slices.ContainsFunc(v.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == t })
}

// gate applies the readiness gates, which live in the space only.
func gate(ready *corev1.PodCondition, v *corev1.Pod) {
	for _, g := range v.Spec.ReadinessGates {
		if !slices.ContainsFunc(v.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		}) && ready.Status == corev1.ConditionTrue {
			ready.Status, ready.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
			ready.Message = "condition " + string(g.ConditionType) + " of the pod's readiness gates is not True"
		}
	}
}

func scrubContainers(list []corev1.ContainerStatus, r *scrubber) []corev1.ContainerStatus {
	for i := range list {
		for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
			if state.Waiting != nil {
				state.Waiting.Message = r.scrub(state.Waiting.Message)
			}
			if t := state.Terminated; t != nil {
				switch t.Reason {
				case "Completed", "Error", "OOMKilled": // the process's last words, which may be data
					t.Message = r.scrubNames(t.Message)
				default:
					t.Message = r.scrub(t.Message)
				}
			}
		}
		list[i].AllocatedResourcesStatus = nil // devices of the node, by its own ids
		// The host mounts what translation made of the volumes; names stay.
	}
	return list
}
