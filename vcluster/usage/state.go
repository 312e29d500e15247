// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/apis/core"
)

// podState is what decides how much a pod uses, apart from its spec, which has a generation. Resources that are given to containers count
// while a pod is resized.
type podState struct {
	generation int64
	ended      bool
	infeasible bool
	given      []given
}

// given is what a container was given: its name, its resources, and its allocated resources, in types of the version that the pod has. The
// pod's own have no name.
type given [3]any

// plain reports whether the status has no resources: then a pod uses what its spec says, until it ends.
func (s *podState) plain() bool { return !s.infeasible && len(s.given) == 0 }

func (s *podState) same(as *podState) bool {
	return s.generation == as.generation && s.ended == as.ended && s.infeasible == as.infeasible &&
		(len(s.given)+len(as.given) == 0 || equality.Semantic.DeepEqual(s.given, as.given))
}

func stateOfV1(pod *corev1.Pod) podState {
	status := &pod.Status
	s := podState{
		generation: pod.Generation,
		ended:      status.Phase == corev1.PodSucceeded || status.Phase == corev1.PodFailed,
		infeasible: resource.IsPodResizeInfeasible(pod),
	}
	if status.Resources != nil || status.AllocatedResources != nil {
		s.given = append(s.given, given{"", status.Resources, status.AllocatedResources})
	}
	for _, of := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range of {
			if c := &of[i]; c.Resources != nil || c.AllocatedResources != nil {
				s.given = append(s.given, given{c.Name, c.Resources, c.AllocatedResources})
			}
		}
	}
	return s
}

func stateOf(pod *core.Pod) podState {
	status := &pod.Status
	s := podState{
		generation: pod.Generation,
		ended:      status.Phase == core.PodSucceeded || status.Phase == core.PodFailed,
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == core.PodResizePending {
			s.infeasible = c.Reason == corev1.PodReasonInfeasible
			break // as in the function that is for v1
		}
	}
	if status.Resources != nil || status.AllocatedResources != nil {
		s.given = append(s.given, given{"", status.Resources, status.AllocatedResources})
	}
	for _, of := range [][]core.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range of {
			if c := &of[i]; c.Resources != nil || c.AllocatedResources != nil {
				s.given = append(s.given, given{c.Name, c.Resources, c.AllocatedResources})
			}
		}
	}
	return s
}

// Changes reports whether two versions of an object may use different amounts.
func Changes(before, after runtime.Object) bool {
	switch was := before.(type) {
	case *corev1.Pod:
		is, ok := after.(*corev1.Pod)
		if !ok || was == nil || is == nil {
			return true
		}
		old, now := stateOfV1(was), stateOfV1(is)
		return !old.same(&now)
	case *core.Pod:
		is, ok := after.(*core.Pod)
		if !ok || was == nil || is == nil {
			return true
		}
		old, now := stateOf(was), stateOf(is)
		return !old.same(&now)
	default:
		return true
	}
}

// Keep returns a copy of what decides how much an object uses, for [Changes] and [Calculator.Of] once the object may have changed.
func Keep(object runtime.Object) runtime.Object {
	pod, ok := object.(*core.Pod)
	if !ok {
		return object.DeepCopyObject()
	}
	kept := slim(pod)
	kept.ObjectMeta = metav1.ObjectMeta{UID: pod.UID, Generation: pod.Generation}
	kept.Status = core.PodStatus{
		Phase:                 pod.Status.Phase,
		Resources:             pod.Status.Resources.DeepCopy(),
		AllocatedResources:    pod.Status.AllocatedResources.DeepCopy(),
		ContainerStatuses:     keepGiven(pod.Status.ContainerStatuses),
		InitContainerStatuses: keepGiven(pod.Status.InitContainerStatuses),
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == core.PodResizePending {
			kept.Status.Conditions = append(kept.Status.Conditions, core.PodCondition{Type: c.Type, Reason: c.Reason})
		}
	}
	return kept
}

func keepGiven(all []core.ContainerStatus) (kept []core.ContainerStatus) {
	for i := range all {
		if c := &all[i]; c.Resources != nil || c.AllocatedResources != nil {
			kept = append(kept, core.ContainerStatus{Name: c.Name, Resources: c.Resources.DeepCopy(), AllocatedResources: c.AllocatedResources.DeepCopy()})
		}
	}
	return kept
}

// slimV1 returns the parts of a pod that matter to quotas. They are shared with the pod. A pod that is being deleted counts until it is gone,
// so that it uses the same whenever it is asked about.
func slimV1(pod *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{
		Spec:   corev1.PodSpec{Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources},
		Status: pod.Status,
	}
	for _, all := range []struct {
		from []corev1.Container
		to   *[]corev1.Container
	}{{pod.Spec.InitContainers, &slim.Spec.InitContainers}, {pod.Spec.Containers, &slim.Spec.Containers}} {
		for i := range all.from {
			*all.to = append(*all.to, corev1.Container{Name: all.from[i].Name, Resources: all.from[i].Resources, RestartPolicy: all.from[i].RestartPolicy})
		}
	}
	return slim
}

// slim is the same for the internal version. Its containers are copies, to which defaults can be added.
func slim(pod *core.Pod) *core.Pod {
	slim := &core.Pod{
		Spec:   core.PodSpec{Overhead: pod.Spec.Overhead.DeepCopy(), Resources: pod.Spec.Resources.DeepCopy()},
		Status: pod.Status,
	}
	for _, all := range []struct {
		from []core.Container
		to   *[]core.Container
	}{{pod.Spec.InitContainers, &slim.Spec.InitContainers}, {pod.Spec.Containers, &slim.Spec.Containers}} {
		for i := range all.from {
			*all.to = append(*all.to, core.Container{Name: all.from[i].Name, Resources: *all.from[i].Resources.DeepCopy(), RestartPolicy: all.from[i].RestartPolicy})
		}
	}
	return slim
}
