// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Domain is the prefix of every label and annotation that Berth owns on the
// host. Keys under it are never taken from a tenant.
const Domain = "berth.dev"

// Keys on host objects. The labels select (watches, network policies, garbage); the
// annotations hold the full identity, which a label value may be too short for.
const (
	LabelSpace     = Domain + "/space"
	LabelNamespace = Domain + "/namespace"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelPlatform is on a space's host namespace, and on what Berth writes for the space outside of it: the platform
	// that runs the space. By it, the host's admission policies tell one platform's namespaces from another's.
	LabelPlatform       = Domain + "/platform"
	AnnotationNamespace = Domain + "/namespace"
	AnnotationName      = Domain + "/name"
	AnnotationUID       = Domain + "/uid"
	// AnnotationSubdomain is on a pod that has a host name in a subdomain: for
	// the space's DNS, as on the host the subdomain's service has another name.
	AnnotationSubdomain = Domain + "/subdomain"
	// AnnotationNode is the pod's node as the space knows it; it is set once
	// the host has scheduled the pod.
	AnnotationNode = Domain + "/node"
	// AnnotationStore is on a space's host namespace: which store the objects in
	// it are synced from. Another one's syncer would take them for garbage.
	AnnotationStore = Domain + "/store"

	// AnnotationPlacement on a space's host namespace is [Placement.String].
	AnnotationPlacement = Domain + "/placement"
)

// ManagedBy is the value of [LabelManagedBy] on all host objects.
const ManagedBy = "berth"

// Identity is a virtual object's identity as recorded on its host object.
type Identity struct {
	Space     string
	Namespace string // empty for cluster-scoped objects
	Name      string
	UID       types.UID // empty while a host object is only reserved
}

// IdentityOf reads the identity that was recorded on a host object; ok is
// false for an object that Berth did not make.
func IdentityOf(host metav1.Object) (id Identity, ok bool) {
	space := host.GetLabels()[LabelSpace]
	name := host.GetAnnotations()[AnnotationName]
	if space == "" || name == "" {
		return Identity{}, false
	}
	return Identity{
		Space:     space,
		Namespace: host.GetAnnotations()[AnnotationNamespace],
		Name:      name,
		UID:       types.UID(host.GetAnnotations()[AnnotationUID]),
	}, true
}

// Owned reports whether key is in the domain that only Berth writes.
func Owned(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == Domain || strings.HasSuffix(domain, "."+Domain))
}
