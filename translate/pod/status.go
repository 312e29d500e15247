// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-dev/berth/translate"
)

// PullStatus is the status of v as the host pod tells it: what containers
// do, with nodes and their addresses hidden (N1, N2). Conditions that only the
// space knows stay as they are.
func PullStatus(s translate.Space, v, host *corev1.Pod) corev1.PodStatus {
	h := host.DeepCopy()
	scrubber := podScrubber(s, v, host)
	out := corev1.PodStatus{
		Phase:                      h.Status.Phase,
		Message:                    scrubber.podMessage(h.Status.Reason, h.Status.Message),
		Reason:                     h.Status.Reason,
		PodIP:                      h.Status.PodIP,
		PodIPs:                     h.Status.PodIPs,
		StartTime:                  h.Status.StartTime,
		QOSClass:                   v.Status.QOSClass,
		NominatedNodeName:          s.NodeAlias(h.Status.NominatedNodeName),
		InitContainerStatuses:      ofAsked(v.Spec.InitContainers, scrubContainers(h.Status.InitContainerStatuses, v, scrubber)),
		ContainerStatuses:          ofAsked(v.Spec.Containers, scrubContainers(h.Status.ContainerStatuses, v, scrubber)),
		EphemeralContainerStatuses: scrubContainers(h.Status.EphemeralContainerStatuses, v, scrubber),
		Resources:                  h.Status.Resources,
		AllocatedResources:         h.Status.AllocatedResources,
		ResourceClaimStatuses:      v.Status.ResourceClaimStatuses, // the space's own controller writes them
	}
	if out.QOSClass == "" {
		out.QOSClass = h.Status.QOSClass
	}
	out.ObservedGeneration = v.Status.ObservedGeneration
	if h.Status.ObservedGeneration == h.Generation {
		out.ObservedGeneration = v.Generation
	}
	// The downward API of the pod says the same (see fieldPath): clients wait for an address of its node.
	out.HostIP = out.PodIP
	for _, ip := range out.PodIPs {
		out.HostIPs = append(out.HostIPs, corev1.HostIP(ip))
	}
	out.Conditions = pullConditions(v, h, scrubber)
	return out
}

func pullConditions(v, host *corev1.Pod, r *scrubber) []corev1.PodCondition {
	var out []corev1.PodCondition
	seen := map[corev1.PodConditionType]bool{} // a tenant may write thousands
	for i, c := range host.Status.Conditions {
		if !hostCondition(c.Type) {
			continue
		}
		switch c.Type {
		case corev1.PodScheduled:
			if c.Message != "" {
				c.Message = SchedulingReason(c.Message)
			}
		case corev1.PodResizePending:
			c.Message = resizeReason(c.Reason)
		case corev1.PodResizeInProgress:
			if c.Message != "" {
				c.Message = resizeReason(c.Reason)
			}
		default:
			c.Message = r.conditionMessage(c.Reason, c.Message)
		}
		if c.Type == corev1.PodReady {
			gate(&c, v)
		}
		c.ObservedGeneration = 0
		if before, told := conditionOf(v, c.Type); told {
			c.ObservedGeneration = before.ObservedGeneration
		}
		if host.Status.Conditions[i].ObservedGeneration == host.Generation {
			c.ObservedGeneration = v.Generation
		}
		seen[c.Type] = true
		out = append(out, c)
	}
	for _, c := range v.Status.Conditions {
		if !seen[c.Type] && ownCondition(c.Type) {
			seen[c.Type] = true
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

// ownCondition reports whether the space may set a condition by itself: its
// disruption controller does, and controllers of the tenant's set all that are
// not Kubernetes' own, those of readiness gates among them.
func ownCondition(t corev1.PodConditionType) bool {
	return t == corev1.DisruptionTarget || !hostCondition(t)
}

// gate says of the readiness gates what the space knows: the host may be a
// moment behind, names them otherwise, and may have gates of its own.
func gate(ready *corev1.PodCondition, v *corev1.Pod) {
	const reason = "ReadinessGatesNotReady"
	if ready.Reason == reason {
		ready.Message = "the pod's readiness gates are not met yet"
	}
	for _, g := range v.Spec.ReadinessGates {
		c, _ := conditionOf(v, g.ConditionType)
		if c.Status != corev1.ConditionTrue && (ready.Status == corev1.ConditionTrue || ready.Reason == reason) {
			ready.Status, ready.Reason = corev1.ConditionFalse, reason
			ready.Message = "condition " + string(g.ConditionType) + " of the pod's readiness gates is not True"
			return
		}
	}
}

// resizeReason says why a resize waits, in place of a kubelet's message, which
// tells what its node has (N1).
func resizeReason(reason string) string {
	switch reason {
	case corev1.PodReasonDeferred:
		return "the pod's new resources do not fit on its node now; the host retries"
	case corev1.PodReasonInfeasible:
		return "the pod's new resources do not fit on its node; request less, or delete the pod and create it again"
	case corev1.PodReasonError:
		return "the host could not resize the pod; it retries"
	default:
		return "the pod waits to be resized"
	}
}

func scrubContainers(list []corev1.ContainerStatus, v *corev1.Pod, r *scrubber) []corev1.ContainerStatus {
	for i := range list {
		for _, state := range []*corev1.ContainerState{&list[i].State, &list[i].LastTerminationState} {
			if state.Waiting != nil {
				state.Waiting.Message = r.waitingMessage(state.Waiting.Reason, state.Waiting.Message, v)
			}
			if t := state.Terminated; t != nil {
				t.Message = r.terminatedMessage(t.Reason, t.Message)
			}
		}
		list[i].AllocatedResourcesStatus = nil // devices of the node, by its own ids
		// The host mounts what translation made of the volumes; names stay.
	}
	return list
}

// ofAsked leaves those resources in statuses that the containers ask for. What the
// space's LimitRange adds on the host is in no spec of the space, and clients that resize
// a pod compare the two.
func ofAsked(spec []corev1.Container, list []corev1.ContainerStatus) []corev1.ContainerStatus {
	for i := range list {
		at := slices.IndexFunc(spec, func(c corev1.Container) bool { return c.Name == list[i].Name })
		if at < 0 {
			continue
		}
		asked := spec[at].Resources
		list[i].AllocatedResources = among(list[i].AllocatedResources, asked.Requests)
		if has := list[i].Resources; has != nil {
			has.Requests, has.Limits = among(has.Requests, asked.Requests), among(has.Limits, asked.Limits)
		}
	}
	return list
}

// among is what of list is also in asked, nil if nothing is.
func among(list, asked corev1.ResourceList) corev1.ResourceList {
	maps.DeleteFunc(list, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, is := asked[name]
		return !is
	})
	if len(list) == 0 {
		return nil
	}
	return list
}
