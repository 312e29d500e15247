// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage says what objects of a space use of a quota on the host, by upstream's own evaluators.
package usage

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	evaluators "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

// recentPods is how many pods a calculator remembers: those whose writes are under way. Each takes about 2 KiB.
const recentPods = 16

// Calculator calculates what objects use. It is safe for concurrent use.
type Calculator struct {
	limits *corev1.LimitRange
	claims utilquota.Evaluator
	clock  clock.Clock
	// recent is what pods use by their version. A pod is asked about when it is written, and when an informer has seen it.
	recent *lru.Cache
}

// version is all that decides what a pod uses as it was created, without resources in its status. Its spec doesn't change without its
// generation, and each try to create a pod has a UID of its own.
type version struct {
	uid   types.UID
	ended bool
}

// New returns a calculator for a space on whose pods the host sets the defaults of a LimitRange with these limits.
func New(limits []corev1.LimitRangeItem, clock clock.Clock) *Calculator {
	return &Calculator{
		limits: &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: limits}},
		claims: evaluators.NewPersistentVolumeClaimEvaluator(nil),
		clock:  clock,
		recent: lru.New(recentPods),
	}
}

// Of returns what an object uses: a pod or a claim, in the internal version or in v1. Other objects use nothing. A nil object uses
// nothing, either. The caller must not change what is returned.
func (c *Calculator) Of(object runtime.Object) (corev1.ResourceList, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		if o == nil {
			return nil, nil
		}
		return c.ofPod(o.UID, stateOfV1(o), func() (*core.Pod, error) {
			internal := &core.Pod{}
			if err := corev1conversion.Convert_v1_Pod_To_core_Pod(slimV1(o), internal, nil); err != nil {
				return nil, fmt.Errorf("convert pod: %w", err)
			}
			return slim(internal), nil
		})
	case *core.Pod:
		if o == nil {
			return nil, nil
		}
		return c.ofPod(o.UID, stateOf(o), func() (*core.Pod, error) { return slim(o), nil })
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

// ofPod returns what a pod uses with the defaults that it gets on the host.
func (c *Calculator) ofPod(uid types.UID, state podState, slim func() (*core.Pod, error)) (corev1.ResourceList, error) {
	key := version{uid: uid, ended: state.ended}
	// Of what an update writes, the generation doesn't say which spec it is: the update may be refused, and another one may come.
	remember := uid != "" && state.generation == 1 && state.plain()
	if remember {
		if used, ok := c.recent.Get(key); ok {
			return used.(corev1.ResourceList), nil
		}
	}
	pod, err := slim()
	if err != nil {
		return nil, err
	}
	if err := limitranger.PodMutateLimitFunc(c.limits, pod); err != nil {
		return nil, fmt.Errorf("set the defaults of a pod: %w", err)
	}
	used, err := evaluators.PodUsageFunc(pod, c.clock)
	if err != nil {
		return nil, fmt.Errorf("calculate what a pod uses: %w", err)
	}
	countClaims(used)
	if remember {
		c.recent.Add(key, used)
	}
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
