// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// Space has the properties of a space that decide what it receives.
type Space struct {
	Name, Tenant string
	// Profile is that of its owners.
	Profile v1alpha1.OwnerProfile
	// InheritsFrom are the tenants above whose rights its tenant inherits, the nearest first. A private tenant inherits from none.
	// Of those below it, it is the last one.
	InheritsFrom []string
	// Depth is how many tenants are above, whether its tenant inherits from them or not.
	Depth int
}

// SpaceOf returns what a Space object says.
func SpaceOf(object *v1alpha1.Space) Space {
	space := Space{Name: object.Name, Tenant: object.Spec.TenantName, Profile: object.Spec.Access.OwnerProfile}
	for label := range object.Labels {
		if strings.HasPrefix(label, v1alpha1.LabelTreePrefix) {
			space.Depth++
		}
	}
	if above := object.Annotations[v1alpha1.AnnotationInheritsFrom]; above != "" && space.Tenant != "" {
		space.InheritsFrom = strings.Split(above, ",")
	}
	return space
}

// Received returns the classes of a space's objects that another space receives: those of the tenants above whose rights its tenant
// inherits, and of no others.
func Received(receiver, from Space) (classes []Class) {
	if from.Tenant == "" {
		return nil
	}
	steps := slices.Index(receiver.InheritsFrom, from.Tenant)
	if steps < 0 {
		return nil
	}
	for _, class := range Classes() {
		if class.Scope == v1alpha1.ScopeChildren && steps > 0 {
			continue
		}
		if class.WholeSpace && (receiver.Profile != v1alpha1.SpaceAdmin || from.Profile != v1alpha1.SpaceAdmin) {
			continue
		}
		classes = append(classes, class)
	}
	return classes
}

// NeedsWholeSpace reports whether only spaces may receive an object whose owners have the profile SpaceAdmin.
//
// With the profile NamespaceAdmin, an admin keeps owners from all that is not in the namespaces of the tenant, and in these from what
// their roles don't allow. An owner of a tenant above is an owner there, too, and must not pass over that by sharing. So such a
// space receives only what an owner of the namespace could write there: objects of the ClusterRole edit, and bindings to the roles
// that Kubernetes has for namespaces. A Role isn't among them, because nobody checks here whose rights it has.
func NeedsWholeSpace(object *unstructured.Unstructured) bool {
	if !access.IsTenants(object.GetNamespace()) {
		return true
	}
	switch object.GetKind() {
	case "ConfigMap", "Secret", "NetworkPolicy":
		return false
	case roleBindingKind:
		kind, _, _ := unstructured.NestedString(object.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(object.Object, "roleRef", "name")
		return kind != clusterRoleKind || !slices.Contains([]string{"admin", "edit", "view"}, name)
	}
	return true
}
