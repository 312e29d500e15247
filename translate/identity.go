// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Domain is the prefix of all labels and annotations that Berth writes on the host. Tenants' labels and annotations
// with this prefix are never copied.
const Domain = "berth.dev"

// Keys on host objects. Labels are for selecting: by watches, network policies, and garbage collection. Annotations
// contain the full identity, which may be too long for a label.
const (
	LabelSpace     = Domain + "/space"
	LabelNamespace = Domain + "/namespace"
	// LabelTenant on a volume of the host is the tenant of the space whose claim has it.
	LabelTenant    = Domain + "/tenant"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelPlatform is the platform that runs a space. It is on the space's host namespace, and on Berth's objects
	// outside of it. By it, the host's admission policies distinguish the namespaces of platforms.
	LabelPlatform       = Domain + "/platform"
	AnnotationNamespace = Domain + "/namespace"
	AnnotationName      = Domain + "/name"
	AnnotationUID       = Domain + "/uid"
	// AnnotationSubdomain is the subdomain of a pod with a host name. The space's DNS needs it, because on the host the
	// service of the subdomain has another name.
	AnnotationSubdomain = Domain + "/subdomain"
	// AnnotationNode is the alias of the pod's node. It is set when the host has scheduled the pod.
	AnnotationNode = Domain + "/node"
	// AnnotationStore on a space's host namespace is the ID of the store from which its objects are synced. The syncer
	// of another store would delete them as stale.
	AnnotationStore = Domain + "/store"

	// AnnotationPlacement on a space's host namespace is [Placement.String].
	AnnotationPlacement = Domain + "/placement"
	// AnnotationPriorities on a space's host namespace is [Priorities.String].
	AnnotationPriorities = Domain + "/priorities"
	// AnnotationWorkloadIdentity on a space's host namespace lists what [workloadidentity.Rules.Strings] returns. On a host service
	// account, it lists the keys of the annotations that Berth set, without which nobody could tell them from those of the host's admin.
	AnnotationWorkloadIdentity = Domain + "/workload-identity"
)

// ManagedBy is the value of [LabelManagedBy] on all host objects.
const ManagedBy = "berth"

// Identity is the identity of a virtual object, as recorded on its host object.
type Identity struct {
	Space     string
	Namespace string // empty for cluster-scoped objects
	Name      string
	UID       types.UID // empty while a host object is only reserved
}

// IdentityOf returns the identity that is recorded on a host object; ok is false if Berth did not create the object.
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

// Owned reports whether only Berth may write a key.
func Owned(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (domain == Domain || strings.HasSuffix(domain, "."+Domain))
}
