// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/translate"
)

// What changes in a pod that runs goes to the host by requests of their own,
// beside what [Push] does: a function each, which changes have towards want,
// its wanted state, and reports a difference.

// AddEphemeral adds to the host pod have the ephemeral containers that it
// lacks. They can be neither changed nor removed, so that one that is there
// stays as it came, with the services' addresses of its day.
func AddEphemeral(want, have *corev1.Pod) bool {
	changed := false
	for i := range want.Spec.EphemeralContainers {
		c := &want.Spec.EphemeralContainers[i]
		if !slices.ContainsFunc(have.Spec.EphemeralContainers, func(h corev1.EphemeralContainer) bool { return h.Name == c.Name }) {
			have.Spec.EphemeralContainers = append(have.Spec.EphemeralContainers, *c.DeepCopy())
			changed = true
		}
	}
	return changed
}

// Resize sets on the host pod have the CPU and memory that the tenant asks for,
// for the pod and for its containers. What the tenant does not say stays as the
// host's defaults made it: it can not be taken back.
func Resize(want, have *corev1.Pod) bool {
	// A pod's QoS class is immutable. Limits that the host filled in, and
	// that happened to make it Guaranteed, must follow the requests.
	guaranteed := have.Status.QOSClass == corev1.PodQOSGuaranteed
	changed := false
	if want.Spec.Resources != nil {
		if have.Spec.Resources == nil {
			have.Spec.Resources = &corev1.ResourceRequirements{}
		}
		changed = resize(want.Spec.Resources, have.Spec.Resources, false)
	}
	each := func(want, have []corev1.Container) {
		for i := range have { // by name: the host may have put containers of its own among them
			j := slices.IndexFunc(want, func(c corev1.Container) bool { return c.Name == have[i].Name })
			if j >= 0 && resize(&want[j].Resources, &have[i].Resources, guaranteed) {
				changed = true
			}
		}
	}
	each(want.Spec.InitContainers, have.Spec.InitContainers)
	each(want.Spec.Containers, have.Spec.Containers)
	return changed
}

func resize(want, have *corev1.ResourceRequirements, guaranteed bool) (changed bool) {
	set := func(list *corev1.ResourceList, name corev1.ResourceName, quantity resource.Quantity) {
		if current, ok := (*list)[name]; ok && current.Cmp(quantity) == 0 {
			return
		}
		put(list, name, quantity)
		changed = true
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, asks := want.Requests[name]
		limit, limited := want.Limits[name]
		if asks {
			set(&have.Requests, name, request)
		}
		switch {
		case limited:
			set(&have.Limits, name, limit)
		case asks && guaranteed:
			set(&have.Limits, name, request)
		}
	}
	return changed
}

// GatePrefix begins the conditions of the host's readiness gates for those of
// spaces' pods.
const GatePrefix = "gate." + translate.Domain + "/"

// gates are the host's readiness gates for those of v. Their conditions bear
// names of Berth's: a tenant's must not be one that the host's own controllers
// set or act on.
func gates(v *corev1.Pod) []corev1.PodReadinessGate {
	var out []corev1.PodReadinessGate
	for _, g := range v.Spec.ReadinessGates {
		if own := (corev1.PodReadinessGate{ConditionType: gateType(g.ConditionType)}); !slices.Contains(out, own) {
			out = append(out, own)
		}
	}
	return out
}

func gateType(t corev1.PodConditionType) corev1.PodConditionType {
	return corev1.PodConditionType(annotationKey(GatePrefix, string(t)))
}

// PatchGates is a strategic merge patch of the status of v's host pod, which
// answers its readiness gates as v's status does, or nil if it does so already.
// It holds no other condition and nothing that the tenant wrote but true or not:
// the rest of a host's status is the host's.
func PatchGates(v, host *corev1.Pod) []byte {
	type condition struct {
		Type               corev1.PodConditionType `json:"type"`
		Status             corev1.ConditionStatus  `json:"status,omitempty"`
		LastTransitionTime *metav1.Time            `json:"lastTransitionTime,omitempty"`
		Patch              string                  `json:"$patch,omitempty"`
	}
	var changes []condition
	for _, g := range host.Spec.ReadinessGates {
		i := slices.IndexFunc(v.Spec.ReadinessGates, func(own corev1.PodReadinessGate) bool { return gateType(own.ConditionType) == g.ConditionType })
		if i < 0 {
			continue // the host's own
		}
		said, has := conditionOf(v, v.Spec.ReadinessGates[i].ConditionType)
		told, there := conditionOf(host, g.ConditionType)
		status := corev1.ConditionFalse
		if said.Status == corev1.ConditionTrue {
			status = corev1.ConditionTrue
		}
		switch {
		case !has && there:
			changes = append(changes, condition{Type: g.ConditionType, Patch: "delete"})
		case has && (!there || status != told.Status):
			changes = append(changes, condition{Type: g.ConditionType, Status: status, LastTransitionTime: &said.LastTransitionTime})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	type meta struct {
		UID types.UID `json:"uid"`
	}
	type status struct {
		Conditions []condition `json:"conditions"`
	}
	patch, err := json.Marshal(struct {
		Metadata meta   `json:"metadata"` // of this pod, and of none that takes its name
		Status   status `json:"status"`
	}{meta{host.UID}, status{changes}})
	if err != nil {
		panic(fmt.Sprintf("encode strings and times: %v", err))
	}
	return patch
}

func conditionOf(pod *corev1.Pod, t corev1.PodConditionType) (corev1.PodCondition, bool) {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		return corev1.PodCondition{}, false
	}
	return pod.Status.Conditions[i], true
}
