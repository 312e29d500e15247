// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
)

func podsIn(u user.Info, verb, namespace string) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{User: u, Verb: verb, Resource: "pods", Namespace: namespace, ResourceRequest: true}
}

func sourceOf(grants ...access.Grant) *access.Source {
	s := &access.Source{}
	s.Set(&access.State{Space: "solar", Tenant: "solar"})
	s.SetTenantAccesses(grants)
	return s
}

func readPods(subjects ...access.GrantSubject) access.Grant {
	return access.Grant{Source: "TenantAccess a", Subjects: subjects, Rules: []access.GrantRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, Namespaces: []string{"web"}}}}
}

// Z1, Z5: a visitor is let in, and may do something, exactly if a grant says so now.
func TestVisitorsMayDoWhatGrantsSay(t *testing.T) {
	now := time.Now()
	bob := &identity.Identity{Name: "bob", Groups: []string{"crew"}, Tenant: "lunar"}
	expired, later := metav1.NewTime(now.Add(-time.Second)), metav1.NewTime(now.Add(time.Second))
	for reason, c := range map[string]struct {
		subject access.GrantSubject
		expires *metav1.Time
		want    bool
	}{
		"the user":                       {access.GrantSubject{Tenant: "lunar", Users: []string{"bob"}}, nil, true},
		"a group":                        {access.GrantSubject{Tenant: "lunar", Groups: []string{"crew"}}, nil, true},
		"all of the tenant":              {access.GrantSubject{Tenant: "lunar"}, nil, true},
		"until later":                    {access.GrantSubject{Tenant: "lunar"}, &later, true},
		"expired":                        {access.GrantSubject{Tenant: "lunar"}, &expired, false},
		"another user":                   {access.GrantSubject{Tenant: "lunar", Users: []string{"eve"}}, nil, false},
		"the same name elsewhere":        {access.GrantSubject{Tenant: "mars", Users: []string{"bob"}}, nil, false},
		"the name in the space":          {access.GrantSubject{Tenant: "lunar", Users: []string{"berth:tenant:lunar:bob"}}, nil, false},
		"user and group, both must hold": {access.GrantSubject{Tenant: "lunar", Users: []string{"bob"}, Groups: []string{"ops"}, Both: true}, nil, false},
	} {
		grant := readPods(c.subject)
		grant.Expires = c.expires
		s, visitor := sourceOf(grant), bob.AsVisitor()
		u := access.UserOf(visitor)
		if s.Accepts(visitor, now) != c.want {
			t.Errorf("%s: it is let in: %t", reason, !c.want)
		}
		for _, request := range []struct {
			a    authorizer.Attributes
			want bool
		}{
			{podsIn(u, "get", "web"), c.want}, {podsIn(u, "get", ""), false}, {podsIn(u, "get", "default"), false}, {podsIn(u, "delete", "web"), false},
			{authorizer.AttributesRecord{User: u, Verb: "get", Path: "/apis"}, c.want}, {authorizer.AttributesRecord{User: u, Verb: "get", Path: "/metrics"}, false},
		} {
			decision, _ := s.Authorize(request.a, now)
			if want := map[bool]authorizer.Decision{true: authorizer.DecisionAllow, false: authorizer.DecisionDeny}[request.want]; decision != want {
				t.Errorf("%s: %s %s in %q: %v", reason, request.a.GetVerb(), request.a.GetPath()+request.a.GetResource(), request.a.GetNamespace(), decision)
			}
		}
		if s.Accepts(bob, now) {
			t.Errorf("%s: it is let in under its own name", reason)
		}
	}
}

// A6, Z5: nobody else passes for a visitor, or for a user whom the platform knows.
func TestHostileUsersAreNoVisitors(t *testing.T) {
	now := time.Now()
	grant := readPods(access.GrantSubject{Tenant: "lunar"}, access.GrantSubject{Tenant: "system"}, access.GrantSubject{Tenant: "solar"})
	s := sourceOf(grant)
	root := access.UserOf(&identity.Identity{Name: "root", Tenant: v1alpha1.SystemTenant})
	if decision, _ := s.Authorize(podsIn(root, "get", "web"), now); decision != authorizer.DecisionNoOpinion {
		t.Errorf("a TenantAccess is for who is no visitor: %v", decision)
	}
	s.SetGranted([]*access.Set{access.NewSet([]access.Grant{grant})})
	if decision, _ := s.Authorize(podsIn(who("bob", "berth:tenant:lunar", "berth:tenant:lunar:crew"), "get", "web"), now); decision != authorizer.DecisionNoOpinion {
		t.Errorf("who has only the groups: %v", decision)
	}
	for _, u := range []user.Info{who("root"), who("berth:tenant:lunar"), &user.DefaultInfo{Name: "root", Extra: map[string][]string{"berth.dev/tenant": {"system"}}}} {
		if decision, _ := s.Authorize(podsIn(u, "get", "web"), now); decision == authorizer.DecisionAllow {
			t.Errorf("%v is allowed", u)
		}
	}
	if decision, _ := s.Authorize(podsIn(root, "get", "web"), now); decision != authorizer.DecisionAllow {
		t.Errorf("the system user itself: %v", decision)
	}
	for _, i := range []identity.Identity{
		{Name: "berth:tenant:system:root", Tenant: "system", Visitor: true}, {Name: "berth:tenant:solar:alice", Tenant: "solar", Visitor: true},
		{Name: "berth:tenant:lunar:bob", Tenant: "mars", Visitor: true}, {Name: "bob", Tenant: "lunar", Visitor: true}, {Name: "bob", Tenant: "lunar"}, {Name: "berth:tenant:lunar:bob", Tenant: "solar"},
	} {
		if s.Accepts(&i, now) {
			t.Errorf("%+v is let in", i)
		}
	}
	for _, verb := range []string{"impersonate", "impersonate:user-info", "impersonate-on:user-info:get"} {
		all := access.GrantRule{Verbs: []string{"*", verb}, APIGroups: []string{"*"}, Resources: []string{"*"}}
		if all.Allows(podsIn(nil, verb, "web")) {
			t.Errorf("%s is granted", verb)
		}
	}
}

// Z5: the names of visitors lead back to who they are, whatever the names and groups are.
func TestNamesOfVisitorsAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := identity.Identity{Tenant: rapid.StringMatching(`[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?`).Draw(t, "tenant"), Name: rapid.String().Draw(t, "name"), Groups: rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "groups")}
		visitor := i.AsVisitor()
		u := access.UserOf(visitor)
		c, ok := access.VisitorOf(u)
		if !ok || c.Tenant != i.Tenant || c.Name != i.Name || !slices.Equal(c.Groups, i.Groups) || !access.IsReserved(u) {
			t.Errorf("%+v became %+v", i, c)
		}
		if slices.Contains(u.GetGroups(), user.AllAuthenticated) {
			t.Errorf("%v is authenticated", u)
		}
	})
}

func TestCordonsHoldForVisitors(t *testing.T) {
	s := sourceOf(access.Grant{Source: "a", Subjects: []access.GrantSubject{{Tenant: "lunar"}}, Rules: []access.GrantRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}})
	cordoned := true
	s.Set(&access.State{Space: "solar", Tenant: "solar", Access: v1alpha1.Access{Cordoned: &cordoned}})
	u := access.UserOf((&identity.Identity{Name: "bob", Tenant: "lunar"}).AsVisitor())
	for verb, want := range map[string]authorizer.Decision{"get": authorizer.DecisionAllow, "create": authorizer.DecisionDeny} {
		if decision, _ := s.Authorize(podsIn(u, verb, "web"), time.Now()); decision != want {
			t.Errorf("%s: %v", verb, decision)
		}
	}
}

// Z5, T8: what a space grants is known while it is awake, and changes are noticed.
func TestGrantsAreForgottenWhenASpaceSleeps(t *testing.T) {
	s := sourceOf()
	changed := s.TenantAccessesChanged()
	s.SetTenantAccesses([]access.Grant{readPods(access.GrantSubject{Tenant: "lunar"})})
	<-changed
	if grants, known := s.TenantAccesses(); len(grants.All()) != 1 || !known {
		t.Errorf("awake: %v, %t", grants, known)
	}
	changed = s.TenantAccessesChanged()
	s.SetTenantAccesses([]access.Grant{readPods(access.GrantSubject{Tenant: "lunar"})})
	select {
	case <-changed:
		t.Error("the same grants are a change")
	default:
	}
	s.ForgetTenantAccesses()
	if grants, known := s.TenantAccesses(); len(grants.All()) != 0 || known {
		t.Errorf("asleep: %v, %t", grants, known)
	}
	soon, late := metav1.NewTime(time.Unix(10, 0)), metav1.NewTime(time.Unix(20, 0))
	all := access.NewSet([]access.Grant{{Expires: &late}, {}, {Expires: &soon}})
	for at, want := range map[int64]int64{0: 10, 10: 20, 15: 20} {
		if next := all.NextExpiry(time.Unix(at, 0)); next.Unix() != want {
			t.Errorf("after %d, the next expires at %v", at, next)
		}
	}
	if next := all.NextExpiry(time.Unix(20, 0)); !next.IsZero() {
		t.Errorf("nothing expires, and the next does at %v", next)
	}
}
