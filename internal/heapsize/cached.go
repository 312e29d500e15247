// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package heapsize

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

const (
	// perObject is about what an object takes besides itself: its places in an informer's index, and its node in the garbage
	// collector's graph.
	perObject = 1 << 10
	// perOwner is about what an owner takes that the garbage collector doesn't know: a node of its graph, with a place in its queue.
	perOwner = 700
	// perName is about what a name takes that an object refers to, as the only one: the syncer's indexes find the object by it.
	perName = 400
)

// Cached is about how many bytes of memory informers and controllers take for a Kubernetes object. Informers keep no managed
// fields. It is 0 for what is no object.
func Cached(object any) int64 {
	m, err := meta.Accessor(object)
	if err != nil {
		return 0
	}
	managed := Behind(reflect.ValueOf(m.GetManagedFields()))
	return perObject + Of(object) - managed + perOwner*int64(len(m.GetOwnerReferences())) + perName*int64(names(object))
}

// names is how many names an object refers to that the syncer's indexes hold.
func names(object any) int {
	var all []string
	switch o := object.(type) {
	case *corev1.Pod:
		all = podNames(&o.Spec)
	case *networkingv1.Ingress:
		for i := range o.Spec.TLS {
			all = append(all, "secret "+o.Spec.TLS[i].SecretName)
		}
		for i := range o.Spec.Rules {
			if http := o.Spec.Rules[i].HTTP; http != nil {
				for j := range http.Paths {
					if service := http.Paths[j].Backend.Service; service != nil {
						all = append(all, service.Name)
					}
				}
			}
		}
	}
	slices.Sort(all)
	return len(slices.Compact(all))
}

// podNames are those in the environment of a pod's containers, which may be very many, and of its pull secrets. A volume takes
// about as much by itself.
func podNames(spec *corev1.PodSpec) (all []string) {
	add := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for i := range env {
			source := env[i].ValueFrom
			if source != nil && source.ConfigMapKeyRef != nil {
				all = append(all, source.ConfigMapKeyRef.Name)
			}
			if source != nil && source.SecretKeyRef != nil {
				all = append(all, source.SecretKeyRef.Name)
			}
		}
		for i := range from {
			if from[i].ConfigMapRef != nil {
				all = append(all, from[i].ConfigMapRef.Name)
			}
			if from[i].SecretRef != nil {
				all = append(all, from[i].SecretRef.Name)
			}
		}
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			add(containers[i].Env, containers[i].EnvFrom)
		}
	}
	for i := range spec.EphemeralContainers {
		add(spec.EphemeralContainers[i].Env, spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range spec.ImagePullSecrets {
		all = append(all, spec.ImagePullSecrets[i].Name)
	}
	return all
}

// Counter counts what an informer's objects take.
type Counter struct {
	add func(bytes int64)

	mu      sync.Mutex
	held    int64
	stopped bool
}

var _ cache.ResourceEventHandler = (*Counter)(nil)

// Count has add called with each change of what the informer's objects take, until the counter is stopped.
func Count(informer cache.SharedInformer, add func(bytes int64)) (*Counter, error) {
	c := &Counter{add: add}
	if _, err := informer.AddEventHandler(c); err != nil {
		return nil, fmt.Errorf("count an informer's objects: %w", err)
	}
	return c, nil
}

// Stop takes back all that was counted. What changes later is not counted.
func (c *Counter) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	c.add(-c.held)
	c.held = 0
}

// OnAdd is called by the informer, as are the others.
func (c *Counter) OnAdd(object any, _ bool) { c.grow(Cached(object)) }

// OnUpdate counts the difference.
func (c *Counter) OnUpdate(old, object any) { c.grow(Cached(object) - Cached(old)) }

// OnDelete counts it no longer.
func (c *Counter) OnDelete(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	c.grow(-Cached(object))
}

func (c *Counter) grow(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.held += bytes
		c.add(bytes)
	}
}
