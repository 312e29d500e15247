// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage says what objects of a space use of a quota on the host, by upstream's own evaluators.
package usage

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/utils/clock"
)

// Calculator calculates what objects use. It is safe for concurrent use.
type Calculator struct {
	limits *corev1.LimitRange
	claims utilquota.Evaluator
	clock  clock.Clock
}

// New returns a calculator for a space on whose pods the host sets the defaults of a LimitRange with these limits.
func New(limits []corev1.LimitRangeItem, clock clock.Clock) *Calculator {
	return &Calculator{limits: &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: limits}}, claims: evaluators.NewPersistentVolumeClaimEvaluator(nil), clock: clock}
}

// Of returns what an object uses: a pod or a claim, in the internal version or in v1. Other objects use nothing. A nil object uses
// nothing, either.
func (c *Calculator) Of(object runtime.Object) (corev1.ResourceList, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		if o == nil {
			return nil, nil
		}
		internal := &core.Pod{}
		if err := corev1conversion.Convert_v1_Pod_To_core_Pod(slimV1(o), internal, nil); err != nil {
			return nil, fmt.Errorf("convert pod: %w", err)
		}
		return c.ofPod(internal)
	case *core.Pod:
		if o == nil {
			return nil, nil
		}
		return c.ofPod(o)
	case *corev1.PersistentVolumeClaim, *core.PersistentVolumeClaim:
		used, err := c.claims.Usage(object)
		if err != nil {
			return nil, fmt.Errorf("calculate what a claim uses: %w", err)
		}
		return utilquota.Mask(used, []corev1.ResourceName{corev1.ResourcePersistentVolumeClaims, corev1.ResourceRequestsStorage}), nil
	default:
		return nil, nil
	}
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

// ofPod returns what the pod uses with the defaults that it gets on the host.
func (c *Calculator) ofPod(pod *core.Pod) (corev1.ResourceList, error) {
	slim := &core.Pod{
		Spec:   core.PodSpec{Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources},
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
	if err := limitranger.PodMutateLimitFunc(c.limits, slim); err != nil {
		return nil, fmt.Errorf("set the defaults of a pod: %w", err)
	}
	used, err := evaluators.PodUsageFunc(slim, c.clock)
	if err != nil {
		return nil, fmt.Errorf("calculate what a pod uses: %w", err)
	}
	countClaims(used)
	return used, nil
}

// countClaims adds the devices of the claims that the host's scheduler makes for what a pod requests by number. A quota may count either.
func countClaims(used corev1.ResourceList) {
	for name, amount := range used {
		if class, ok := strings.CutPrefix(string(name), corev1.DefaultResourceRequestsPrefix+resourcev1.ResourceDeviceClassPrefix); ok {
			used[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = amount
		}
	}
}

// Changes reports whether two versions of an object may use different amounts.
func Changes(before, after runtime.Object) bool {
	switch was := before.(type) {
	case *corev1.Pod:
		is, ok := after.(*corev1.Pod)
		return !ok || was == nil || is == nil || was.Generation != is.Generation || was.Status.Phase != is.Status.Phase ||
			resized(was.Status.ContainerStatuses, is.Status.ContainerStatuses, ofV1)
	case *core.Pod:
		is, ok := after.(*core.Pod)
		return !ok || was == nil || is == nil || was.Generation != is.Generation || was.Status.Phase != is.Status.Phase ||
			resized(was.Status.ContainerStatuses, is.Status.ContainerStatuses, ofInternal)
	default:
		return true
	}
}

func ofV1(s *corev1.ContainerStatus) [2]any { return [2]any{s.Resources, s.AllocatedResources} }

func ofInternal(s *core.ContainerStatus) [2]any { return [2]any{s.Resources, s.AllocatedResources} }

// resized reports whether the resources of containers differ.
func resized[T any](was, is []T, of func(*T) [2]any) bool {
	if len(was) != len(is) {
		return true
	}
	for i := range was {
		if !equality.Semantic.DeepEqual(of(&was[i]), of(&is[i])) {
			return true
		}
	}
	return false
}
