// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// LabelField is the field of the label, for messages.
const LabelField = "metadata.labels[" + v1alpha1.LabelShare + "]"

// ScopeOf returns the scope that a value of the label stands for.
func ScopeOf(value string) (v1alpha1.ShareScope, error) {
	switch value {
	case v1alpha1.ShareChildren:
		return v1alpha1.ScopeChildren, nil
	case v1alpha1.ShareDescendants:
		return v1alpha1.ScopeDescendants, nil
	}
	return "", fmt.Errorf("%s: %q is neither %q, for the tenants directly below, nor %q, for all tenants below; correct the value, or remove the label",
		LabelField, value, v1alpha1.ShareChildren, v1alpha1.ShareDescendants)
}

// CheckResource returns why objects of a resource can't be shared.
func CheckResource(resource schema.GroupResource, value string) error {
	if _, ok := KindOf(resource); !ok {
		return fmt.Errorf("%s: %q is set on an object of %s, which can't be shared; remove the label, or share one of %s", LabelField, value, resource, resourceNames())
	}
	return nil
}

// Check returns why an object can't be shared, whoever receives it: it would break a space, reveal a credential of one, or give
// rights to everybody.
func Check(object *unstructured.Unstructured) error {
	gvk, namespace, name := object.GroupVersionKind(), object.GetNamespace(), object.GetName()
	kind, ok := KindFor(gvk)
	switch {
	case !ok:
		return fmt.Errorf("apiVersion and kind: %s of %s can't be shared; share one of %s", gvk.Kind, gvk.GroupVersion(), resourceNames())
	case kind.ClusterScoped != (namespace == ""):
		return fmt.Errorf("metadata.namespace: %q is wrong for an object of kind %s; correct it", namespace, kind.Kind)
	}
	if err := checkNames(kind, namespace, name); err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(namespace, "kube-"):
		return fmt.Errorf("metadata.namespace: %s belongs to each space itself, so its objects can't be shared; move the object to another namespace", namespace)
	case strings.HasPrefix(name, "berth-"), strings.HasPrefix(name, "berth:"):
		return fmt.Errorf("metadata.name: names that begin with berth belong to Berth, so %q can't be shared; choose another name", name)
	}
	switch {
	case kind.Rights():
		return checkRights(kind, object)
	case kind.Kind == "ConfigMap" && name == "kube-root-ca.crt":
		return fmt.Errorf("metadata.name: each namespace has its own ConfigMap %s, so it can't be shared; remove the label", name)
	case kind.Kind == "Secret":
		return checkSecret(object)
	}
	return nil
}

// checkNames refuses names that the API servers of other spaces would reject. For a name without a limit in Kubernetes, that of a
// role, it is the limit of other names.
func checkNames(kind Kind, namespace, name string) error {
	wrong := validation.IsDNS1123Subdomain(name)
	if kind.Rights() {
		wrong = content.IsPathSegmentName(name)
		if name == "" || len(name) > validation.DNS1123SubdomainMaxLength {
			wrong = append(wrong, fmt.Sprintf("must have 1 to %d bytes", validation.DNS1123SubdomainMaxLength))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("metadata.name: the name %.64q can't be shared: %s; choose another name", name, wrong[0])
	}
	if namespace == "" {
		return nil
	}
	if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
		return fmt.Errorf("metadata.namespace: %.64q is not the name of a namespace: %s; correct it", namespace, wrong[0])
	}
	return nil
}

// checkSecret refuses credentials of the space itself, and releases of Helm, which name objects that are not in another space.
func checkSecret(object *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(object.Object, "type")
	switch corev1.SecretType(name) {
	case corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken, "helm.sh/release.v1":
		return fmt.Errorf("type: a Secret of type %s is of use only in its own space, and can't be shared; copy what you need to a Secret of another type", name)
	}
	return nil
}

// checkRights refuses to replace what each space has of its own, and to give rights to those whom no tenant manages.
func checkRights(kind Kind, object *unstructured.Unstructured) error {
	name := object.GetName()
	if slices.Contains([]string{"admin", "edit", "view", "cluster-admin"}, name) && kind.ClusterScoped || isReserved(name) || object.GetLabels()[bootstrapLabel] != "" {
		return fmt.Errorf("metadata.name: each space has its own %s %s, so it can't be shared; create one of another name", kind.Kind, name)
	}
	if object.Object["aggregationRule"] != nil {
		return fmt.Errorf("aggregationRule: whoever may create a ClusterRole in your space could add rules to the shared one, so it can't be shared; list the rules instead")
	}
	subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
	if err != nil {
		return fmt.Errorf("subjects: %w", err)
	}
	for i, item := range subjects {
		subject, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("subjects[%d]: %v is not an object; correct it", i, item)
		}
		who, _, err := unstructured.NestedString(subject, "name")
		if err != nil {
			return fmt.Errorf("subjects[%d].name: %w", i, err)
		}
		if subject["kind"] != "ServiceAccount" && isReserved(who) {
			return fmt.Errorf("subjects[%d].name: %q stands for users whom your tenant doesn't manage, so the binding can't be shared; name a user, a group, or a ServiceAccount", i, who)
		}
	}
	return nil
}

// bootstrapLabel is on the roles and bindings that each API server makes for itself.
const bootstrapLabel = "kubernetes.io/bootstrapping"

// isReserved reports whether a name is of Kubernetes or of Berth.
func isReserved(name string) bool {
	for _, prefix := range []string{"system:", "kubeadm:", "berth:"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Clean returns a copy of an object without its status and the metadata that the API server of its space sets.
func Clean(object *unstructured.Unstructured) *unstructured.Unstructured {
	content := object.DeepCopy().Object
	delete(content, "status")
	delete(content, "metadata")
	clean := &unstructured.Unstructured{Object: content}
	clean.SetName(object.GetName())
	clean.SetNamespace(object.GetNamespace())
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	delete(labels, v1alpha1.LabelShare)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(labels) > 0 {
		clean.SetLabels(labels)
	}
	if len(annotations) > 0 {
		clean.SetAnnotations(annotations)
	}
	return clean
}
