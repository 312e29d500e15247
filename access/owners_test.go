// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

func who(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

// O1, O6, O7: who counts as an owner, and whose rights are all of the space.
func TestStandingOf(t *testing.T) {
	alice := v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "alice"}
	robot := v1alpha1.Owner{Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:tenant-system:robot"}
	team := v1alpha1.Owner{Kind: v1alpha1.GroupKind, Name: "solar-users"}
	joe := v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "joe", ClusterRoles: []string{"view"}}
	all := []v1alpha1.Owner{alice, robot, team, joe}
	groups := v1alpha1.OwnerScope{Groups: []string{"berth.dev"}}
	owner, spaceAdmin := access.Standing{Owner: true}, access.Standing{Owner: true, Admin: true, SpaceAdmin: true}
	for reason, c := range map[string]struct {
		access   v1alpha1.Access
		user     user.Info
		promoted bool
		want     access.Standing
	}{
		"an owner, without a scope":                    {v1alpha1.Access{Owners: all}, who("alice"), false, spaceAdmin},
		"somebody else":                                {v1alpha1.Access{Owners: all}, who("mallory", "alice"), false, access.Standing{}},
		"a user who has the name of a group":           {v1alpha1.Access{Owners: all}, who("solar-users"), false, access.Standing{}},
		"an owner without the role admin":              {v1alpha1.Access{Owners: all}, who("joe"), false, owner},
		"an owner who is in a group with more":         {v1alpha1.Access{Owners: all}, who("joe", "solar-users"), false, spaceAdmin},
		"under NamespaceAdmin":                         {v1alpha1.Access{Owners: all, OwnerProfile: v1alpha1.NamespaceAdmin}, who("alice"), false, access.Standing{Owner: true, Admin: true}},
		"outside of the scope":                         {v1alpha1.Access{Owners: all, OwnerScope: groups}, who("alice", "other"), false, access.Standing{}},
		"in a group of the scope":                      {v1alpha1.Access{Owners: all, OwnerScope: groups}, who("alice", "berth.dev"), false, spaceAdmin},
		"a user of the scope":                          {v1alpha1.Access{Owners: all, OwnerScope: v1alpha1.OwnerScope{Users: []string{"alice"}}}, who("alice"), false, spaceAdmin},
		"a group outside of the scope":                 {v1alpha1.Access{Owners: all, OwnerScope: groups}, who("bob", "solar-users"), false, access.Standing{}},
		"a group, and another group of the scope":      {v1alpha1.Access{Owners: all, OwnerScope: groups}, who("bob", "solar-users", "berth.dev"), false, spaceAdmin},
		"a group of the scope that owns":               {v1alpha1.Access{Owners: all, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"solar-users"}}}, who("bob", "solar-users"), false, spaceAdmin},
		"a group that owns, and a user of the scope":   {v1alpha1.Access{Owners: all, OwnerScope: v1alpha1.OwnerScope{Users: []string{"bob"}}}, who("bob", "solar-users"), false, spaceAdmin},
		"a ServiceAccount whose group is in the scope": {v1alpha1.Access{Owners: all, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"system:serviceaccounts:tenant-system"}}}, who(robot.Name), false, spaceAdmin},
		"a ServiceAccount in the scope of users":       {v1alpha1.Access{Owners: all, OwnerScope: v1alpha1.OwnerScope{Users: []string{robot.Name}}}, who(robot.Name), false, spaceAdmin},
		"a ServiceAccount in the form of the seed":     {v1alpha1.Access{Owners: all, OwnerScope: v1alpha1.OwnerScope{Users: []string{"system:serviceaccounts:tenant-system:robot"}}}, who(robot.Name), false, spaceAdmin},
		"a ServiceAccount of another namespace":        {v1alpha1.Access{Owners: all}, who("system:serviceaccount:other:robot"), false, access.Standing{}},
		"the group of a ServiceAccount":                {v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.GroupKind, Name: "system:serviceaccounts:x"}}}, who("system:serviceaccount:x:y"), false, spaceAdmin},
		"promoted, but there are no promotions":        {v1alpha1.Access{OwnerScope: groups}, who("system:serviceaccount:x:y"), true, access.Standing{}},
		"promoted (O5)":                                {v1alpha1.Access{OwnerScope: groups, ServiceAccountPromotion: v1alpha1.Enabled}, who("system:serviceaccount:x:y"), true, spaceAdmin},
		"an administrator, whatever the scope": {
			v1alpha1.Access{OwnerScope: groups, OwnerProfile: v1alpha1.NamespaceAdmin, Administrators: []v1alpha1.Subject{{Kind: v1alpha1.GroupKind, Name: "ops"}}},
			who("eve", "ops"), false, access.Standing{Administrator: true},
		},
	} {
		if got := access.NewRules(&access.State{Access: c.access}).StandingOf(c.user, c.promoted); got != c.want {
			t.Errorf("%s: %+v, want %+v", reason, got, c.want)
		}
	}
}

func drawAccess(t *rapid.T) v1alpha1.Access {
	names := rapid.SampledFrom([]string{"a", "b", "c", "system:serviceaccount:n:a"})
	kinds := rapid.SampledFrom([]v1alpha1.SubjectKind{v1alpha1.UserKind, v1alpha1.GroupKind, v1alpha1.ServiceAccountKind})
	roles := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"admin", "view", "x"}), 0, 3, rapid.ID)
	a := v1alpha1.Access{
		OwnerProfile: rapid.SampledFrom([]v1alpha1.OwnerProfile{"", v1alpha1.SpaceAdmin, v1alpha1.NamespaceAdmin}).Draw(t, "profile"),
		OwnerScope: v1alpha1.OwnerScope{
			Groups: rapid.SliceOfN(names, 0, 2).Draw(t, "scope groups"), Users: rapid.SliceOfN(names, 0, 2).Draw(t, "scope users"),
		},
	}
	for range rapid.IntRange(0, 4).Draw(t, "owners") {
		a.Owners = append(a.Owners, v1alpha1.Owner{Kind: kinds.Draw(t, "kind"), Name: names.Draw(t, "name"), ClusterRoles: roles.Draw(t, "roles")})
	}
	return a
}

func drawUser(t *rapid.T) user.Info {
	names := rapid.SampledFrom([]string{"a", "b", "c", "system:serviceaccount:n:a"})
	return who(names.Draw(t, "user"), rapid.SliceOfN(names, 0, 3).Draw(t, "groups")...)
}

// O6: a narrower scope gives nobody more, and only owners have role bindings of owners.
func TestAScopeNeverAddsRights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		narrow, u := drawAccess(t), drawUser(t)
		wide := narrow
		wide.OwnerScope = v1alpha1.OwnerScope{}
		some, more := access.NewRules(&access.State{Space: "s", Access: narrow}), access.NewRules(&access.State{Space: "s", Access: wide})
		was, is := more.StandingOf(u, false), some.StandingOf(u, false)
		if is.Owner && !was.Owner || is.SpaceAdmin && !was.SpaceAdmin || is.Administrator {
			t.Fatalf("%+v with a scope, %+v without", is, was)
		}
		if bindings := some.BindingsOf(u, false); len(bindings) > 0 != is.Owner {
			t.Fatalf("%+v has %d bindings", is, len(bindings))
		}
		if is.SpaceAdmin && narrow.OwnerProfile == v1alpha1.NamespaceAdmin {
			t.Fatal("all rights under NamespaceAdmin")
		}
	})
}
