// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Clean returns what of a source is published: neither what the host's API server and controllers set, nor what belongs to
// the host only.
func Clean(source *unstructured.Unstructured) map[string]any {
	object := source.DeepCopy().Object
	metadata := map[string]any{"name": source.GetName()}
	if namespace := source.GetNamespace(); namespace != "" {
		metadata["namespace"] = namespace
	}
	if labels := outside(source.GetLabels(), nil); len(labels) > 0 {
		metadata["labels"] = labels
	}
	if annotations := outside(source.GetAnnotations(), hostAnnotations); len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	object["metadata"] = metadata
	delete(object, "status")
	if spec, ok := object["spec"].(map[string]any); ok && len(spec) == 0 {
		delete(object, "spec")
	}
	cleanKind(source.GroupVersionKind().GroupKind(), object)
	return object
}

// hostAnnotations are prefixes of annotations about the object on the host, and not about a copy.
var hostAnnotations = []string{
	corev1.LastAppliedConfigAnnotation, "deployment.kubernetes.io/revision", "pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/storage-provisioner",
	"control-plane.alpha.kubernetes.io/leader",
}

// outside returns the entries that are neither of Berth nor begin with a prefix.
func outside(entries map[string]string, prefixes []string) map[string]any {
	kept := map[string]any{}
	for key, value := range entries {
		if domain, _, ok := strings.Cut(key, "/"); ok && isBerth(domain) {
			continue
		}
		host := false
		for _, prefix := range prefixes {
			host = host || strings.HasPrefix(key, prefix)
		}
		if !host {
			kept[key] = value
		}
	}
	return kept
}

// cleanKind removes fields that the host assigned.
func cleanKind(kind schema.GroupKind, object map[string]any) {
	switch kind {
	case schema.GroupKind{Kind: "Service"}:
		cleanService(object)
	case schema.GroupKind{Kind: "ServiceAccount"}:
		delete(object, "secrets")
	case schema.GroupKind{Kind: "PersistentVolumeClaim"}:
		unstructured.RemoveNestedField(object, "spec", "volumeName")
	case schema.GroupKind{Kind: "Namespace"}:
		delete(object, "spec") // finalizers
		unstructured.RemoveNestedField(object, "metadata", "labels", corev1.LabelMetadataName)
	case schema.GroupKind{Group: "batch", Kind: "Job"}:
		if manual, _, _ := unstructured.NestedBool(object, "spec", "manualSelector"); !manual {
			unstructured.RemoveNestedField(object, "spec", "selector")
			for _, label := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
				unstructured.RemoveNestedField(object, "spec", "template", "metadata", "labels", label)
			}
		}
	case schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:
		delete(object, "aggregationRule") // the rules are those of the host, and tenants can't add to them
	}
}

// cleanService removes what the host assigned to a Service. That it is headless stays.
func cleanService(object map[string]any) {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return
	}
	if spec["clusterIP"] != corev1.ClusterIPNone {
		delete(spec, "clusterIP")
	}
	for _, field := range []string{"clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"} {
		delete(spec, field)
	}
	ports, _ := spec["ports"].([]any)
	for _, item := range ports {
		if port, ok := item.(map[string]any); ok {
			delete(port, "nodePort")
		}
	}
}
