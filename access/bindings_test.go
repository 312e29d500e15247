// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// O3, O4: the names are those of the seed.
func TestRoleBindingsHaveTheNamesOfTheSeed(t *testing.T) {
	sample := map[string]string{"example.com/sample": "true"}
	rules := access.NewRules(&access.State{Space: "blue", Tenant: "solar", Access: v1alpha1.Access{
		Owners: []v1alpha1.Owner{
			{Kind: v1alpha1.UserKind, Name: "alice", Labels: sample, Annotations: sample},
			{Kind: v1alpha1.UserKind, Name: "joe", ClusterRoles: []string{"view", "tenant-resources"}},
			{Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:tenant-system:robot", ClusterRoles: []string{"admin"}},
		},
		AdditionalRoleBindings: []v1alpha1.AdditionalRoleBinding{
			{ClusterRoleName: "argoproj-provisioner", Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "joe"}}},
			{ClusterRoleName: "argoproj-provisioner", Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "eve"}}},
		},
	}})
	var names []string
	for _, b := range rules.RoleBindings(nil) {
		names = append(names, b.Name)
		if b.Labels[access.LabelTenant] != "solar" || b.Labels[access.LabelRoleBinding] == "" {
			t.Errorf("%s has the labels %v", b.Name, b.Labels)
		}
	}
	second := names[len(names)-1]
	want := []string{
		"berth-solar-0-admin", "berth-solar-1-berth-namespace-deleter", "berth-solar-2-view", "berth-solar-3-tenant-resources", "berth-solar-4-admin",
		"berth-solar-argoproj-provisioner", second,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if !strings.HasPrefix(second, "berth-solar-argoproj-provisioner-") {
		t.Errorf("the second binding of a role is %s", second)
	}
	first := rules.RoleBindings(nil)[0]
	if first.Labels["example.com/sample"] != "true" || first.Annotations["example.com/sample"] != "true" {
		t.Errorf("the labels and annotations of the owner are missing: %v, %v", first.Labels, first.Annotations)
	}
	robot := rules.RoleBindings(nil)[4].Subjects
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "tenant-system", Name: "robot"}}, robot); diff != "" {
		t.Error(diff)
	}
}

func TestRoleBindingsShowPromotedServiceAccounts(t *testing.T) {
	rules := access.NewRules(&access.State{Space: "solar", Access: v1alpha1.Access{ServiceAccountPromotion: v1alpha1.Enabled}})
	if got := rules.RoleBindings(nil); len(got) != 0 {
		t.Errorf("without promoted ServiceAccounts: %v", got)
	}
	got := rules.RoleBindings([]string{"b/robot", "a/robot"})
	if len(got) != 2 || got[0].Name != "berth-solar-promoted-admin" || len(got[0].Subjects) != 2 || got[0].Subjects[0].Namespace != "a" {
		t.Errorf("got %+v", got)
	}
}

// Each binding has a name of its own, which a store takes, and nothing that a state holds is changed.
func TestRoleBindingsHaveNamesOfTheirOwn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?`)
		role := rapid.OneOf(text, rapid.Just(strings.Repeat("x", 253)), rapid.SampledFrom([]string{"0-admin", "1-view", "admin", "promoted-admin"}))
		state := &access.State{Space: text.Draw(t, "space"), Access: v1alpha1.Access{ServiceAccountPromotion: v1alpha1.Enabled}}
		for range rapid.IntRange(0, 5).Draw(t, "owners") {
			state.Access.Owners = append(state.Access.Owners, v1alpha1.Owner{
				Kind: v1alpha1.UserKind, Name: text.Draw(t, "owner"), ClusterRoles: rapid.SliceOfN(role, 0, 3).Draw(t, "roles"), Labels: map[string]string{access.LabelTenant: "forged"},
			})
		}
		for range rapid.IntRange(0, 5).Draw(t, "others") {
			state.Access.AdditionalRoleBindings = append(state.Access.AdditionalRoleBindings, v1alpha1.AdditionalRoleBinding{
				ClusterRoleName: role.Draw(t, "role"), Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: "joe"}},
			})
		}
		used := map[string]bool{}
		for _, b := range access.NewRules(state).RoleBindings([]string{"n/a"}) {
			if used[b.Name] || len(b.Name) > 253 {
				t.Fatalf("the name %s is used twice, or too long", b.Name)
			}
			used[b.Name] = true
			if b.Labels[access.LabelTenant] != state.Space || len(validation.IsValidLabelValue(b.Labels[access.LabelRoleBinding])) > 0 {
				t.Fatalf("the labels of %s are %v", b.Name, b.Labels)
			}
		}
		for _, o := range state.Access.Owners {
			if o.Labels[access.LabelTenant] != "forged" {
				t.Fatal("the state was changed")
			}
		}
		for _, a := range state.Access.AdditionalRoleBindings {
			if a.Subjects[0].APIGroup != "" {
				t.Fatal("the state was changed")
			}
		}
	})
}
