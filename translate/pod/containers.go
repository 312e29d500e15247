// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/translate"
)

func containers(s translate.Space, v *corev1.Pod, list []corev1.Container, env []corev1.EnvVar) []corev1.Container {
	var out []corev1.Container
	defaults := s.Settings.Limits()
	for i := range list {
		c := container(s, v, &list[i], env)
		if v.Spec.Resources != nil {
			share(&c, v.Spec.Resources, defaults)
		}
		limit(&c, defaults)
		out = append(out, c)
	}
	return out
}

// ephemeral are v's ephemeral containers. They ask for no resources.
func ephemeral(s translate.Space, v *corev1.Pod, list []corev1.EphemeralContainer, env []corev1.EnvVar) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for i := range list {
		c := container(s, v, (*corev1.Container)(&list[i].EphemeralContainerCommon), env)
		out = append(out, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon(c), TargetContainerName: list[i].TargetContainerName,
		})
	}
	return out
}

// container is a copy of a container of v's, whose fields go down as they are
// but for what names objects of the space or asks for the host's.
func container(s translate.Space, v *corev1.Pod, of *corev1.Container, env []corev1.EnvVar) corev1.Container {
	c := of.DeepCopy()
	rename := func(ref *string) { *ref = s.HostName(v.Namespace, *ref, translate.LimitSubdomain) }
	visitEnv(c, rename, rename)
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			from.FieldRef.FieldPath = fieldPath(from.FieldRef.FieldPath)
		}
	}
	c.Env = append(env, c.Env...) // env has no capacity to spare: containers without variables of their own share it
	for i := range c.Ports {
		c.Ports[i].HostIP = "" // for a hostPort, see [Check]
	}
	return *c
}

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
