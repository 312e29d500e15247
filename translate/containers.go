// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
)

func (s Space) containers(v *corev1.Pod, list []corev1.Container, in Surroundings) []corev1.Container {
	links := serviceEnv(v, in)
	var out []corev1.Container
	for i := range list {
		c := list[i].DeepCopy()
		rename := func(ref *string) { *ref = s.HostName(v.Namespace, *ref, LimitSubdomain) }
		visitEnv(c, rename, rename)
		for j := range c.Env {
			if from := c.Env[j].ValueFrom; from != nil && from.FieldRef != nil {
				from.FieldRef.FieldPath = fieldPath(from.FieldRef.FieldPath)
			}
		}
		c.Env = append(slices.Clone(links), c.Env...)
		c.Resources.Claims = nil // devices of the host, see CheckPod
		out = append(out, *c)
	}
	return out
}

// serviceEnv is what a kubelet would tell v's containers of services, were the
// space a cluster of its own. On the host, the kubelet is told not to, but it
// always adds the variables of its own API: the space's take their place.
//
// They stand in front of the container's own, which can refer to them and, as
// of two variables of one name the later counts, override them.
func serviceEnv(v *corev1.Pod, in Surroundings) []corev1.EnvVar {
	byName := map[string]*corev1.Service{}
	add := func(service *corev1.Service) {
		// A kubelet skips those without an address before it looks at names.
		if helper.IsServiceIPSet(service) && len(service.Spec.Ports) > 0 {
			byName[service.Name] = service
		}
	}
	if in.API != nil {
		add(in.API)
	}
	if links := v.Spec.EnableServiceLinks; links == nil || *links {
		for _, service := range in.Services {
			add(service)
		}
	}
	// The API comes last: a service "kubernetes-service", too, has a
	// KUBERNETES_SERVICE_PORT, and which counts must not hang on chance.
	const api = "kubernetes"
	var services []*corev1.Service
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if name != api {
			services = append(services, byName[name])
		}
	}
	if byName[api] != nil {
		services = append(services, byName[api])
	}
	return envvars.FromServices(services)
}

// eachContainer visits the init containers and the containers, as host pods have
// no others. A check that must see ephemeral containers too is upstream's.
func eachContainer(spec *corev1.PodSpec, visit func(*corev1.Container)) {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			visit(&list[i])
		}
	}
}

// visitEnv calls back with each name of a config map and of a secret that c's
// environment refers to; the callbacks may change it.
func visitEnv(c *corev1.Container, configMap, secret func(*string)) {
	for i := range c.EnvFrom {
		if ref := c.EnvFrom[i].ConfigMapRef; ref != nil {
			configMap(&ref.Name)
		}
		if ref := c.EnvFrom[i].SecretRef; ref != nil {
			secret(&ref.Name)
		}
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		if from.ConfigMapKeyRef != nil {
			configMap(&from.ConfigMapKeyRef.Name)
		}
		if from.SecretKeyRef != nil {
			secret(&from.SecretKeyRef.Name)
		}
	}
}
