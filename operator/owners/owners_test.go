// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package owners_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/owners"
)

// owner returns an owner with roles; by default those that the definition sets.
func owner(kind v1alpha1.SubjectKind, name string, roles ...string) v1alpha1.Owner {
	if len(roles) == 0 {
		roles = []string{"admin", "berth-namespace-deleter"}
	}
	return v1alpha1.Owner{Kind: kind, Name: name, ClusterRoles: roles}
}

func tenantOwner(name string, set labels.Set, spec v1alpha1.Owner) v1alpha1.TenantOwner {
	return v1alpha1.TenantOwner{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}, Spec: spec}
}

func matching(sets ...labels.Set) (selectors []metav1.LabelSelector) {
	for _, set := range sets {
		selectors = append(selectors, metav1.LabelSelector{MatchLabels: set})
	}
	return selectors
}

func tenant(name string, owners ...v1alpha1.Owner) *v1alpha1.Tenant {
	return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{Owners: owners}}
}

// lines returns the owners as text, a line for each.
func lines(all []owners.Owner) (text []string) {
	for _, o := range all {
		text = append(text, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", o.Kind, o.Name, strings.Join(o.ClusterRoles, ","), o.InheritedFrom)))
	}
	return text
}

// O2: who owns a tenant is as in Capsule's documentation, and what it inherits comes after that.
func TestOwnersAreMergedAndSorted(t *testing.T) {
	const robot = "system:serviceaccount:capsule:controller"
	const usual = "admin,berth-namespace-deleter"
	all := []v1alpha1.TenantOwner{
		tenantOwner("devops", labels.Set{"team": "devops"}, owner(v1alpha1.GroupKind, "oidc:org:devops:a")),
		tenantOwner("controller", labels.Set{"customer": "x"}, owner(v1alpha1.ServiceAccountKind, robot, "mega-admin", "controller")),
		tenantOwner("again", labels.Set{"customer": "x"}, owner(v1alpha1.ServiceAccountKind, robot, "controller", "first-by-name")),
		tenantOwner("nobody", labels.Set{"customer": "y"}, owner(v1alpha1.UserKind, "eve")),
	}
	solar := tenant("solar", owner(v1alpha1.UserKind, "alice"), owner(v1alpha1.ServiceAccountKind, robot))
	for name, tc := range map[string]struct {
		reason    string
		tenant    *v1alpha1.Tenant
		selectors []metav1.LabelSelector
		above     []*v1alpha1.Tenant
		want      []string
	}{
		"alone": {
			reason: "owners of the spec are sorted by kind and name",
			tenant: solar,
			want:   []string{"ServiceAccount " + robot + " " + usual, "User alice " + usual},
		},
		"the seed": {
			reason: "items are OR'd, and entries of one kind and name are joined, those of the spec first",
			tenant: solar, selectors: matching(labels.Set{"team": "devops"}, labels.Set{"customer": "x"}),
			want: []string{
				"Group oidc:org:devops:a " + usual, "ServiceAccount " + robot + " " + usual + ",controller,first-by-name,mega-admin", "User alice " + usual,
			},
		},
		"a selector of everything": {
			reason: "an empty selector selects all, as everywhere",
			tenant: tenant("solar"), selectors: matching(nil),
			want: []string{"Group oidc:org:devops:a " + usual, "ServiceAccount " + robot + " controller,first-by-name,mega-admin", "User eve " + usual},
		},
		"a list that replaces the default": {
			reason: "joe has view only",
			tenant: tenant("solar", owner(v1alpha1.UserKind, "alice"), owner(v1alpha1.UserKind, "joe", "view")),
			want:   []string{"User alice " + usual, "User joe view"},
		},
		"inherited": {
			reason: "the nearest tenant above is named, and what the tenant has itself is not inherited",
			tenant: tenant("d", owner(v1alpha1.UserKind, "alice", "view")),
			above:  []*v1alpha1.Tenant{tenant("b", owner(v1alpha1.UserKind, "bob")), tenant("a", owner(v1alpha1.UserKind, "bob", "edit"), owner(v1alpha1.UserKind, "alice"))},
			want:   []string{"User alice view," + usual, "User bob " + usual + ",edit b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tenant := tc.tenant.DeepCopy()
			tenant.Spec.Permissions.MatchOwners = tc.selectors
			rights, err := owners.Of(tenant, tc.above, all)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, lines(rights.Owners)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// O3: labels and annotations of the same owner are joined, those of the tenant's spec first.
func TestMetadataOfOwnersIsJoined(t *testing.T) {
	mine, other := owner(v1alpha1.UserKind, "alice"), owner(v1alpha1.UserKind, "alice")
	mine.Labels, other.Labels = map[string]string{"a": "mine"}, map[string]string{"a": "other", "b": "other"}
	other.Annotations = map[string]string{"c": "other"}
	one := tenant("solar", mine)
	one.Spec.Permissions.MatchOwners = matching(nil)
	rights, err := owners.Of(one, nil, []v1alpha1.TenantOwner{tenantOwner("alice", nil, other)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"a": "mine", "b": "other"}, rights.Owners[0].Labels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"c": "other"}, rights.Owners[0].Annotations); diff != "" {
		t.Error(diff)
	}
	if len(mine.Labels) != 1 || len(other.Labels) != 2 {
		t.Error("what was given has changed")
	}
}

// O4, H3: additional role bindings are inherited, each once.
func TestBindingsAreInherited(t *testing.T) {
	binding := func(role string) v1alpha1.AdditionalRoleBinding {
		return v1alpha1.AdditionalRoleBinding{ClusterRoleName: role, Subjects: []rbacv1.Subject{{Kind: "User", Name: "joe"}}}
	}
	below, above := tenant("below"), tenant("above")
	below.Spec.AdditionalRoleBindings = []v1alpha1.AdditionalRoleBinding{binding("view")}
	above.Spec.AdditionalRoleBindings = []v1alpha1.AdditionalRoleBinding{binding("edit"), binding("view")}
	rights, err := owners.Of(below, []*v1alpha1.Tenant{above}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]v1alpha1.AdditionalRoleBinding{binding("view"), binding("edit")}, rights.Bindings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A selector that means nothing selects nobody, is named, and the others hold. Too many owners are reported, and the tenant's own
// stay.
func TestWhatCannotHoldIsNamed(t *testing.T) {
	one := tenant("solar", owner(v1alpha1.UserKind, "alice"))
	one.Spec.Permissions.MatchOwners = append([]metav1.LabelSelector{{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}}, matching(nil)...)
	rights, err := owners.Of(one, nil, []v1alpha1.TenantOwner{tenantOwner("bob", nil, owner(v1alpha1.UserKind, "bob"))})
	if err == nil || !strings.Contains(err.Error(), "spec.permissions.matchOwners[0]") {
		t.Errorf("got %v", err)
	}
	if len(rights.Owners) != 2 {
		t.Errorf("the owners are %v", rights.Owners)
	}
	above := tenant("above")
	for i := range owners.MaxOwners {
		above.Spec.Owners = append(above.Spec.Owners, owner(v1alpha1.GroupKind, fmt.Sprintf("group-%03d", i)))
	}
	rights, err = owners.Of(tenant("solar", owner(v1alpha1.UserKind, "alice")), []*v1alpha1.Tenant{above}, nil)
	if err == nil || !strings.Contains(err.Error(), "257 owners") || len(rights.Owners) != owners.MaxOwners {
		t.Errorf("got %d owners and %v", len(rights.Owners), err)
	}
	if last := rights.Owners[owners.MaxOwners-1]; last.Name != "alice" {
		t.Errorf("the tenant's own owner is not there, the last one is %s", last.Name)
	}
}
