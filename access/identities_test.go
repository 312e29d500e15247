// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

const robotName = "system:serviceaccount:tenant-system:robot"

// O6, O9: a ServiceAccount of the host is an owner under its own name, and nobody else is: no ServiceAccount of the space, which a tenant
// can create.
func TestServiceAccountsOfTheHostAreSubjectsOfTheirOwn(t *testing.T) {
	robot := access.HostUser(robotName)
	if want := (user.DefaultInfo{Name: "berth:host:serviceaccount:tenant-system:robot", Groups: []string{"system:authenticated", "berth:host:serviceaccounts", "berth:host:serviceaccounts:tenant-system"}}); robot.Name != want.Name || !slices.Equal(robot.Groups, want.Groups) {
		t.Errorf("it is %v", robot)
	}
	if !access.IsHostUser(robot) || !access.IsHostUser(who("alice", "berth:host:serviceaccounts")) || access.IsHostUser(who("alice", "berth.dev", "berth:admins")) {
		t.Error("users of the host are told from others wrongly")
	}
	for _, name := range []string{"", "robot", "system:serviceaccount:robot", "system:serviceaccount:a:b:c", "berth:host:serviceaccount:a:b", "system:serviceaccount::b"} {
		if u := access.HostUser(name); u != nil {
			t.Errorf("%q is the user %v", name, u)
		}
	}
	host := v1alpha1.Owner{Kind: v1alpha1.HostServiceAccountKind, Name: robotName}
	own := v1alpha1.Owner{Kind: v1alpha1.ServiceAccountKind, Name: robotName}
	twin := who(robotName, "system:serviceaccounts", "system:serviceaccounts:tenant-system")
	administrators := []v1alpha1.Subject{{Kind: host.Kind, Name: host.Name}}
	for reason, c := range map[string]struct {
		access          v1alpha1.Access
		robot, twin     bool // is an owner or administrator
		namespaceIsOfIt bool // tenant-system is a namespace whose ServiceAccounts have rights
	}{
		"an owner":                              {v1alpha1.Access{Owners: []v1alpha1.Owner{host}}, true, false, false},
		"the space's own is":                    {v1alpha1.Access{Owners: []v1alpha1.Owner{own}}, false, true, true},
		"both":                                  {v1alpha1.Access{Owners: []v1alpha1.Owner{host, own}}, true, true, true},
		"an administrator, outside of a scope":  {v1alpha1.Access{Administrators: administrators, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"x"}}}, true, false, false},
		"outside of the scope":                  {v1alpha1.Access{Owners: []v1alpha1.Owner{host}, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"berth.dev"}}}, false, false, false},
		"by the group of all":                   {v1alpha1.Access{Owners: []v1alpha1.Owner{host}, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"berth:host:serviceaccounts"}}}, true, false, false},
		"by the group of its namespace":         {v1alpha1.Access{Owners: []v1alpha1.Owner{host}, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"berth:host:serviceaccounts:tenant-system"}}}, true, false, false},
		"by its user":                           {v1alpha1.Access{Owners: []v1alpha1.Owner{host}, OwnerScope: v1alpha1.OwnerScope{Users: []string{robot.Name}}}, true, false, false},
		"by the user of a space's own":          {v1alpha1.Access{Owners: []v1alpha1.Owner{host, own}, OwnerScope: v1alpha1.OwnerScope{Users: []string{robotName}}}, false, true, true},
		"by the group of all, of a space's own": {v1alpha1.Access{Owners: []v1alpha1.Owner{host, own}, OwnerScope: v1alpha1.OwnerScope{Groups: []string{"system:serviceaccounts"}}}, false, true, true},
	} {
		rules := access.NewRules(&access.State{Space: "solar", Access: c.access})
		if has := rules.HasHostAccount(robotName); has != c.robot {
			t.Errorf("%s: it counts: %v", reason, has)
		}
		for u, want := range map[user.Info]bool{robot: c.robot, who(robot.Name): c.robot, twin: c.twin} { // also one who is impersonated without groups
			if s := rules.StandingOf(u, false); (s.Owner || s.Administrator) != want {
				t.Errorf("%s: %v is %v", reason, u, s)
			}
		}
		if of := rules.OwnerIn("tenant-system"); (of != "") != c.namespaceIsOfIt {
			t.Errorf("%s: the namespace is of %q", reason, of)
		}
		if rules.HasHostAccount("system:serviceaccount:tenant-system:other") || rules.HasHostAccount("alice") {
			t.Errorf("%s: others count", reason)
		}
	}
	bindings := access.NewRules(&access.State{Space: "solar", Access: v1alpha1.Access{Owners: []v1alpha1.Owner{host}}}).RoleBindings(nil)
	if want := (rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: robot.Name}); len(bindings) != 2 || bindings[0].Subjects[0] != want {
		t.Errorf("the role bindings are %v", bindings)
	}
}
