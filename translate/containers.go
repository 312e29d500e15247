// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/kubelet/envvars"
)

func (s Space) containers(v *corev1.Pod, list []corev1.Container, env []corev1.EnvVar) []corev1.Container {
	var out []corev1.Container
	for i := range list {
		c := s.container(v, &list[i], env)
		if v.Spec.Resources != nil {
			share(&c, v.Spec.Resources)
		}
		limit(&c)
		out = append(out, c)
	}
	return out
}

// ephemeral are v's ephemeral containers. They ask for no resources.
func (s Space) ephemeral(v *corev1.Pod, list []corev1.EphemeralContainer, env []corev1.EnvVar) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for i := range list {
		c := s.container(v, (*corev1.Container)(&list[i].EphemeralContainerCommon), env)
		out = append(out, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon(c), TargetContainerName: list[i].TargetContainerName,
		})
	}
	return out
}

// container is a copy of a container of v's, whose fields go down as they are
// but for what names objects of the space or asks for the host's.
func (s Space) container(v *corev1.Pod, of *corev1.Container, env []corev1.EnvVar) corev1.Container {
	c := of.DeepCopy()
	rename := func(ref *string) { *ref = s.HostName(v.Namespace, *ref, LimitSubdomain) }
	visitEnv(c, rename, rename)
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			from.FieldRef.FieldPath = fieldPath(from.FieldRef.FieldPath)
		}
	}
	c.Env = append(slices.Clone(env), c.Env...)
	for i := range c.Ports {
		c.Ports[i].HostIP = "" // for a hostPort, see CheckPod
	}
	return *c
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

// eachContainer visits a pod's init, main and ephemeral containers.
func eachContainer(spec *corev1.PodSpec, visit func(*corev1.Container)) {
	eachContainerAt(nil, spec, func(_ *field.Path, c *corev1.Container) { visit(c) })
}

// eachContainerAt is eachContainer with the paths of their fields.
func eachContainerAt(path *field.Path, spec *corev1.PodSpec, visit func(*field.Path, *corev1.Container)) {
	for i := range spec.InitContainers {
		visit(path.Child("initContainers").Index(i), &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		visit(path.Child("containers").Index(i), &spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		// The same fields, under another type.
		visit(path.Child("ephemeralContainers").Index(i), (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
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
