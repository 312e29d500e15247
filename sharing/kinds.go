// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Limits of what one space shares. The processes of a platform, and the operator, keep what tenants share in memory.
const (
	// MaxObjects is how many objects a space shares. The definition of SharedObject has as many names.
	MaxObjects = 256
	// MaxBytes is how large they are together, as JSON.
	MaxBytes = 1 << 20
	// MaxObjectBytes is how large one is.
	MaxObjectBytes = MaxBytes
)

// Kind is a kind whose objects can be shared.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the plural name.
	Resource string
	// ClusterScoped says that the objects are in no namespace.
	ClusterScoped bool
}

// GroupResource returns the resource without its version.
func (k Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

// Rights reports whether the objects give rights.
func (k Kind) Rights() bool { return k.Group == rbacv1.GroupName }

// Kinds returns the kinds whose objects can be shared.
func Kinds() []Kind {
	return []Kind{
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", false},
		{corev1.SchemeGroupVersion.WithKind("Secret"), "secrets", false},
		{corev1.SchemeGroupVersion.WithKind("LimitRange"), "limitranges", false},
		{corev1.SchemeGroupVersion.WithKind("ResourceQuota"), "resourcequotas", false},
		{networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), "networkpolicies", false},
		{rbacv1.SchemeGroupVersion.WithKind(roleKind), "roles", false},
		{rbacv1.SchemeGroupVersion.WithKind(roleBindingKind), "rolebindings", false},
		{rbacv1.SchemeGroupVersion.WithKind(clusterRoleKind), "clusterroles", true},
		{rbacv1.SchemeGroupVersion.WithKind(clusterRoleBindingKind), "clusterrolebindings", true},
	}
}

const (
	roleKind, roleBindingKind               = "Role", "RoleBinding"
	clusterRoleKind, clusterRoleBindingKind = "ClusterRole", "ClusterRoleBinding"
)

// KindOf returns the kind of a resource; ok is false if its objects can't be shared.
func KindOf(resource schema.GroupResource) (kind Kind, ok bool) {
	return find(func(k Kind) bool { return k.GroupResource() == resource })
}

// KindNamed returns the kind of a plural name; ok is false if its objects can't be shared.
func KindNamed(resource string) (kind Kind, ok bool) {
	return find(func(k Kind) bool { return k.Resource == resource })
}

// KindFor returns the kind of an object; ok is false if it can't be shared.
func KindFor(gvk schema.GroupVersionKind) (kind Kind, ok bool) {
	return find(func(k Kind) bool { return k.GroupVersionKind == gvk })
}

// ObjectName returns a name of a SharedObject. There are as many as a space may share objects.
func ObjectName(i int) string { return fmt.Sprintf("shared-%02x", i%MaxObjects) }

func find(is func(Kind) bool) (kind Kind, ok bool) {
	kinds := Kinds()
	if i := slices.IndexFunc(kinds, is); i >= 0 {
		return kinds[i], true
	}
	return Kind{}, false
}

// resourceNames lists the resources for messages.
func resourceNames() string {
	var names []string
	for _, k := range Kinds() {
		names = append(names, k.GroupResource().String())
	}
	return strings.Join(names, ", ")
}
