// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
)

func (s Space) containers(v *corev1.Pod, list []corev1.Container, env []corev1.EnvVar) []corev1.Container {
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
		c.Env = append(slices.Clone(env), c.Env...)
		c.Resources.Claims = nil // devices of the host, see CheckPod
		limit(c)
		out = append(out, *c)
	}
	return out
}

// serviceEnv is what a kubelet would tell v's containers of services, were the
// space a cluster of its own. On the host, the kubelet is told not to, but it
// always adds the variables of its own API: the space's take their place, or
// empty ones.
//
// They stand in front of the container's own, which can refer to them and, as
// of two variables of one name the later counts, override them.
func serviceEnv(v *corev1.Pod, in Surroundings) []corev1.EnvVar {
	usable := func(service *corev1.Service) bool {
		return helper.IsServiceIPSet(service) && len(service.Spec.Ports) > 0
	}
	var others, apis []*corev1.Service
	if in.API != nil && usable(in.API) {
		apis = append(apis, in.API)
	}
	if links := v.Spec.EnableServiceLinks; links == nil || *links {
		for _, service := range in.Services {
			switch {
			case !usable(service):
			case service.Name != apiService:
				others = append(others, service)
			case service.Namespace != metav1.NamespaceDefault:
				apis = append(apis, service) // a kubelet, too, lets it count more
			}
		}
	}
	slices.SortFunc(others, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	// The API comes last: a service "kubernetes-service", too, has a
	// KUBERNETES_SERVICE_PORT, and which counts must not hang on chance.
	links := envvars.FromServices(append(others, apis...))
	var env []corev1.EnvVar
	for _, name := range apiEnv() {
		if !slices.ContainsFunc(links, func(e corev1.EnvVar) bool { return e.Name == name }) {
			env = append(env, corev1.EnvVar{Name: name})
		}
	}
	return append(env, links...)
}

// apiService is the name of the service, in the namespace default, that leads to a cluster's API.
const apiService = "kubernetes"

// apiEnv names the variables that a kubelet always adds.
var apiEnv = sync.OnceValue(func() (names []string) {
	for _, e := range envvars.FromServices([]*corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Name: apiService},
		Spec:       corev1.ServiceSpec{ClusterIP: "any", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}}) {
		names = append(names, e.Name)
	}
	return names
})

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
