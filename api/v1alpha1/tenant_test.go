// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// O3, H7: a tenant needs a name only. Its owners have the roles that Capsule gives them, and its deletion needs consent.
func TestATenantHasDefaults(t *testing.T) {
	c := hostClient(t)
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}}
	if err := c.Create(t.Context(), tenant, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1alpha1.TenantSpec{DeletionPropagation: v1alpha1.RefuseDeletion, QuotaOvercommit: v1alpha1.OvercommitAllowed}, tenant.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	tenant = &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "solar"}, Spec: v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: "User", Name: "alice"}}}}
	if err := c.Create(t.Context(), tenant, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"admin", "berth-namespace-deleter"}, tenant.Spec.Owners[0].ClusterRoles); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	configuration := &v1alpha1.BerthConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConfigurationName}}
	if err := c.Create(t.Context(), configuration, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.BerthConfigurationSpec{
		DefaultTenantName: "default", OwnerScope: v1alpha1.OwnerScope{Groups: []string{v1alpha1.OwnersGroup, v1alpha1.HostServiceAccountsGroup}},
		ServiceAccountPromotion: v1alpha1.Disabled, MaxTreeDepth: ptr.To[int32](8),
	}
	if diff := cmp.Diff(want, configuration.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// T1, O1, H1: what means nothing is refused with its field and the remedy.
func TestATenantIsValidated(t *testing.T) {
	c := hostClient(t)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	tenant := func(spec v1alpha1.TenantSpec) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: named("valid"), Spec: spec}
	}
	owner := func(kind v1alpha1.SubjectKind, name string) *v1alpha1.Tenant {
		return tenant(v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: kind, Name: name}}})
	}
	source := func(source v1alpha1.PublicationSource) *v1alpha1.Publication {
		source.APIVersion, source.Kind = "v1", "ConfigMap"
		return &v1alpha1.Publication{ObjectMeta: named("valid"), Spec: v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{source}}}
	}
	for name, tc := range map[string]struct {
		object client.Object
		says   []string // nil for an object that is valid
	}{
		"longest name":       {object: &v1alpha1.Tenant{ObjectMeta: named(strings.Repeat("n", 57))}},
		"too long a name":    {&v1alpha1.Tenant{ObjectMeta: named(strings.Repeat("n", 58))}, []string{"at most 57 characters"}},
		"dots in the name":   {&v1alpha1.Tenant{ObjectMeta: named("a.b")}, []string{"must not contain dots"}},
		"reserved name":      {&v1alpha1.Tenant{ObjectMeta: named("host")}, []string{"the name host is reserved"}},
		"system":             {object: &v1alpha1.Tenant{ObjectMeta: named("system")}},
		"a cordoned system":  {&v1alpha1.Tenant{ObjectMeta: named("system"), Spec: v1alpha1.TenantSpec{Cordoned: ptr.To(true)}}, []string{"spec.cordoned", "can't be cordoned"}},
		"kind of an owner":   {owner("Robot", "r2"), []string{"spec.owners[0].kind", `"User", "Group", "ServiceAccount"`}},
		"a service account":  {object: owner("ServiceAccount", "system:serviceaccount:tenant-system:robot")},
		"another's name":     {owner("ServiceAccount", "robot"), []string{"spec.owners[0]", "system:serviceaccount:NAMESPACE:NAME"}},
		"one of the host":    {object: owner("HostServiceAccount", "system:serviceaccount:tenant-system:robot")},
		"its user's name":    {owner("HostServiceAccount", "berth:host:serviceaccount:tenant-system:robot"), []string{"spec.owners[0]", "system:serviceaccount:NAMESPACE:NAME"}},
		"an administrator":   {&v1alpha1.BerthConfiguration{ObjectMeta: named("berth"), Spec: v1alpha1.BerthConfigurationSpec{Administrators: []v1alpha1.Subject{{Kind: "HostServiceAccount", Name: "robot"}}}}, []string{"spec.administrators[0]", "system:serviceaccount:NAMESPACE:NAME"}},
		"no name":            {owner("User", ""), []string{"spec.owners[0].name"}},
		"owner twice":        {tenant(v1alpha1.TenantSpec{Owners: []v1alpha1.Owner{{Kind: "User", Name: "a"}, {Kind: "User", Name: "a"}}}), []string{"spec.owners[1]", "Duplicate"}},
		"parent":             {tenant(v1alpha1.TenantSpec{Parent: "A b"}), []string{"spec.parent"}},
		"its own parent":     {tenant(v1alpha1.TenantSpec{Parent: "valid"}), []string{"can't be its own parent"}},
		"profile":            {tenant(v1alpha1.TenantSpec{OwnerProfile: "All"}), []string{"spec.ownerProfile", `"SpaceAdmin", "NamespaceAdmin"`}},
		"propagation":        {tenant(v1alpha1.TenantSpec{DeletionPropagation: "Orphan"}), []string{"spec.deletionPropagation", `"Refuse", "Subtree"`}},
		"namespaces":         {tenant(v1alpha1.TenantSpec{Namespaces: v1alpha1.Namespaces{Quota: ptr.To[int32](-1)}}), []string{"spec.namespaces.quota"}},
		"label of Berth":     {tenant(v1alpha1.TenantSpec{Namespaces: v1alpha1.Namespaces{Labels: map[string]string{"berth.dev/a": "b"}}}), []string{"spec.namespaces.labels", "set by Berth"}},
		"cost center":        {object: tenant(v1alpha1.TenantSpec{HostNamespaces: v1alpha1.HostNamespace{Labels: map[string]string{"example.com/cost-center": "7"}}})},
		"configuration":      {&v1alpha1.BerthConfiguration{ObjectMeta: named("other")}, []string{"one BerthConfiguration, with the name berth"}},
		"depth":              {&v1alpha1.BerthConfiguration{ObjectMeta: named("berth"), Spec: v1alpha1.BerthConfigurationSpec{MaxTreeDepth: ptr.To[int32](17)}}, []string{"spec.maxTreeDepth"}},
		"source":             {object: source(v1alpha1.PublicationSource{Namespace: "default"})},
		"source by two ways": {source(v1alpha1.PublicationSource{Name: "a", Selector: &metav1.LabelSelector{}}), []string{"spec.sources[0]", "set name or selector, not both"}},
		"no source":          {&v1alpha1.Publication{ObjectMeta: named("valid")}, []string{"spec: Required value"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), tc.object, client.DryRunAll)
			if tc.says == nil && err != nil {
				t.Error(err)
			}
			for _, says := range tc.says {
				if err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
		})
	}
}

// H1, T1: a tenant stays where it is in the tree, and a space with its tenant.
func TestParentsAndTenantsAreImmutable(t *testing.T) {
	c := hostClient(t)
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "child"}, Spec: v1alpha1.TenantSpec{Parent: "parent"}}
	root := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "root"}}
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "of-nobody"}}
	for _, object := range []client.Object{tenant, root, space} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { remove(t, c, object) })
	}
	for name, change := range map[string]func() (client.Object, string){
		"another parent": func() (client.Object, string) { tenant.Spec.Parent = "other"; return tenant, "can't be changed" },
		"no parent":      func() (client.Object, string) { tenant.Spec.Parent = ""; return tenant, "can't be changed" },
		"a parent":       func() (client.Object, string) { root.Spec.Parent = "parent"; return root, "can't be changed" },
	} {
		t.Run(name, func(t *testing.T) {
			object, says := change()
			if err := c.Update(t.Context(), object); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v does not say %q", err, says)
			}
		})
	}
	space.Spec.TenantName = "a"
	if err := c.Update(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	space.Spec.TenantName = "b"
	if err := c.Update(t.Context(), space); err == nil || !strings.Contains(err.Error(), "a space stays with its tenant") {
		t.Errorf("the tenant of a space is changed: %v", err)
	}
	space.Spec.TenantName = ""
	if err := c.Update(t.Context(), space); err == nil || !strings.Contains(err.Error(), "a space stays with its tenant") {
		t.Errorf("the tenant of a space is removed: %v", err)
	}
}
