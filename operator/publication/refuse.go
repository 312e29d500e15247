// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// bootstrapLabel is on the roles and bindings that each API server makes for itself.
const bootstrapLabel = "kubernetes.io/bootstrapping"

// refusedKinds are never published, with the reason.
var refusedKinds = map[schema.GroupKind]string{
	{Kind: "Node"}:                          "a space has no nodes of its own",
	{Kind: "Pod"}:                           "publish what creates pods, such as a Deployment",
	{Kind: "Event"}:                         "events are about objects of the host",
	{Kind: "Binding"}:                       "it is an action and not an object",
	{Kind: "Endpoints"}:                     "addresses of the host mean nothing in a space",
	{Kind: "PersistentVolume"}:              "volumes of the host are given to spaces by their classes",
	{Group: "events.k8s.io", Kind: "Event"}: "events are about objects of the host",
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:                "addresses of the host mean nothing in a space",
	{Group: "coordination.k8s.io", Kind: "Lease"}:                     "a lease is of a process of the host",
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             "a space serves its own APIs",
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:               "a space has no nodes of its own",
	{Group: "storage.k8s.io", Kind: "CSINode"}:                        "a space has no nodes of its own",
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: "a space has its own CA",
}

// refuseKind returns why no object of a kind is published, or nothing.
func refuseKind(kind schema.GroupKind) string {
	if isBerth(kind.Group) {
		return "objects of " + v1alpha1.GroupVersion.Group + " belong to the host"
	}
	return refusedKinds[kind]
}

// Refuse returns why an object is not published, or nothing. A copy of it would break a space, or reveal a credential of the
// host.
func Refuse(object *unstructured.Unstructured) string {
	kind, name := object.GroupVersionKind().GroupKind(), object.GetName()
	if reason := refuseKind(kind); reason != "" {
		return reason
	}
	if object.GetLabels()[bootstrapLabel] != "" {
		return "each space has its own object of that name"
	}
	switch kind {
	case schema.GroupKind{Kind: "Namespace"}:
		if name == defaultName || strings.HasPrefix(name, "kube-") {
			return "each space has its own namespace of that name"
		}
	case schema.GroupKind{Kind: "Secret"}:
		switch secret, _, _ := unstructured.NestedString(object.Object, "type"); corev1.SecretType(secret) {
		case corev1.SecretTypeServiceAccountToken, corev1.SecretTypeBootstrapToken:
			return "a Secret of type " + secret + " is a credential of the host"
		}
	case schema.GroupKind{Kind: "ConfigMap"}:
		if name == "kube-root-ca.crt" {
			return "each space has its own CA"
		}
	case schema.GroupKind{Kind: "ServiceAccount"}:
		if name == defaultName {
			return "each namespace of a space has its own ServiceAccount of that name"
		}
	case schema.GroupKind{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:
		if strings.HasPrefix(name, "system-") {
			return "each space has its own PriorityClass of that name"
		}
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		if group, _, _ := unstructured.NestedString(object.Object, "spec", "group"); isBerth(group) {
			return "definitions of " + v1alpha1.GroupVersion.Group + " belong to the host"
		}
	}
	return ""
}

// defaultName is the name of what each cluster and each namespace has from the start.
const defaultName = "default"

// isBerth reports whether a domain is Berth's.
func isBerth(domain string) bool {
	return domain == v1alpha1.GroupVersion.Group || strings.HasSuffix(domain, "."+v1alpha1.GroupVersion.Group)
}
