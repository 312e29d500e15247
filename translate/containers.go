// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	corev1 "k8s.io/api/core/v1"
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
		c.Env = withDefaults(c.Env, links)
		out = append(out, *c)
	}
	return out
}

// serviceEnv is what a kubelet would tell v's containers of services, were the
// space a cluster of its own. On the host, the kubelet is told not to, but it
// always adds the variables of its own API: the space's take their place.
func serviceEnv(v *corev1.Pod, in Surroundings) []corev1.EnvVar {
	byName := map[string]*corev1.Service{}
	if in.API != nil {
		byName[in.API.Name] = in.API
	}
	services := []*corev1.Service{}
	if links := v.Spec.EnableServiceLinks; links == nil || *links {
		for _, service := range in.Services {
			if len(service.Spec.Ports) > 0 && byName[service.Name] == nil {
				services = append(services, service)
			}
		}
	}
	if in.API != nil && len(in.API.Spec.Ports) > 0 {
		services = append(services, in.API)
	}
	return envvars.FromServices(services)
}

// withDefaults puts the defaults that env does not set itself in front of it,
// where its own variables can refer to them.
func withDefaults(env, defaults []corev1.EnvVar) []corev1.EnvVar {
	set := map[string]bool{}
	for _, e := range env {
		set[e.Name] = true
	}
	var out []corev1.EnvVar
	for _, e := range defaults {
		if !set[e.Name] {
			out = append(out, e)
		}
	}
	return append(out, env...)
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
