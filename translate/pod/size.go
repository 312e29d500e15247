// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// countParts bounds what of a pod its translation and its status multiply with.
func countParts(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	return slices.Concat(translate.AtMost(path.Child("containers"), countContainers(spec), bounds.PodContainers),
		translate.AtMost(path.Child("readinessGates"), len(spec.ReadinessGates), bounds.ReadinessGates),
		translate.AtMost(path, countReferences(spec), bounds.PodReferences))
}

// countReferences is how many ConfigMaps and Secrets a pod refers to.
func countReferences(spec *corev1.PodSpec) int {
	refs := ReferencesOf(&corev1.Pod{Spec: *spec})
	configMaps, secrets := map[types.NamespacedName]bool{}, map[types.NamespacedName]bool{}
	for _, name := range refs.ConfigMaps {
		configMaps[name] = true
	}
	for _, name := range refs.Secrets {
		secrets[name] = true
	}
	return len(configMaps) + len(secrets)
}

// checkSize bounds what of a tenant's pod goes to the host. The other bounds do not
// add up to one: a pod may have few containers with long environments.
func checkSize(meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	size := spec.Size()
	for key, value := range meta.Labels {
		size += len(key) + len(value)
	}
	return tooLarge(field.NewPath("spec"), size)
}

// CheckHost bounds a wanted host pod before it is sent: names of the host's, the
// downward API, and affinity terms are longer there.
func CheckHost(host *corev1.Pod) field.ErrorList {
	return tooLarge(field.NewPath("spec"), host.Size())
}

// tooLarge does not say the size: a pod that is too large already may still be
// updated, see admission, and its size changes with each update.
func tooLarge(path *field.Path, size int) field.ErrorList {
	bound := bounds.PodBytes.Bound()
	if int64(size) <= bound.Default {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf("the pod's encoded size on the host is above %d %s (limit %s): %s",
		bound.Default, bound.Unit, bound.Name, bound.Remedy))}
}
