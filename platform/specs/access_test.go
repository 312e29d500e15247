// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

func owned(owners ...v1alpha1.Owner) *v1alpha1.SpaceSpec {
	return &v1alpha1.SpaceSpec{TenantName: "solar", Access: v1alpha1.Access{Owners: owners}, Namespaces: v1alpha1.Namespaces{Quota: ptr.To[int32](3)}}
}

func read(t *testing.T, s *Specs, spec *v1alpha1.SpaceSpec) *Settings {
	t.Helper()
	settings, errs := s.Read(spec, field.NewPath("spec"))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return settings
}

// O1, O8: who runs a space follows each change by the source that it was given at the start.
func TestASpaceKeepsItsSourceThatFollowsItsSpec(t *testing.T) {
	s, err := New(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Set("solar", read(t, s, owned(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "alice"})))
	source := s.Shard("solar", nil).Access
	state, changed := source.Watch()
	if state.Space != "solar" || state.Tenant != "solar" || state.Access.Owners[0].Name != "alice" || *state.Namespaces.Quota != 3 {
		t.Errorf("the state is %+v", state)
	}
	s.Set("solar", read(t, s, owned(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "bob"})))
	select {
	case <-changed:
	default:
		t.Error("a change is not told")
	}
	if s.Shard("solar", nil).Access != source || source.Get().Access.Owners[0].Name != "bob" {
		t.Errorf("after a change, the owners are %v", source.Get().Access.Owners)
	}
	if other := s.Access("other").Get(); len(other.Access.Owners) > 0 {
		t.Errorf("another space has the owners %v", other.Access.Owners)
	}
	s.Remove("solar")
	if s.Access("solar") == source {
		t.Error("a space of the same name gets the source of a deleted one")
	}
}

type publications struct {
	known bool
	of    map[string][]access.Published
}

// Published implements [Publications].
func (p *publications) Published(space, tenant string, names []string) (objects []access.Published, known bool) {
	for _, name := range names {
		objects = append(objects, p.of[space+"/"+tenant+"/"+name]...)
	}
	return objects, p.known
}

// P1: what is published is part of the state; while it can't be read, that is said, so that no copy is lost.
func TestPublicationsAreResolved(t *testing.T) {
	s, err := New(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	spec := owned()
	spec.Publications = []string{"policies"}
	s.Set("solar", read(t, s, spec))
	s.Set("plain", read(t, s, owned()))
	if state := s.Access("solar").Get(); !state.PublishedUnknown || len(state.Published) > 0 {
		t.Errorf("before anything is known, the state is %+v", state)
	}
	if s.Access("plain").Get().PublishedUnknown {
		t.Error("nothing is known of no publications")
	}
	p := &publications{of: map[string][]access.Published{"solar/solar/policies": {{Publication: "policies"}}}}
	s.SetPublications(p)
	if state := s.Access("solar").Get(); !state.PublishedUnknown || len(state.Published) != 1 {
		t.Errorf("when some are known, the state is %+v", state)
	}
	p.known = true
	s.PublicationsChanged("solar")
	s.PublicationsChanged("unknown")
	if state := s.Access("solar").Get(); state.PublishedUnknown || len(state.Published) != 1 {
		t.Errorf("when all are known, the state is %+v", state)
	}
}

// L3: what is granted in all spaces is kept once, and spaces in which nothing changes are told nothing.
func TestSpacesShareWhatIsGranted(t *testing.T) {
	s, err := New(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.Set("solar", read(t, s, owned()))
	s.Set("lunar", read(t, s, owned()))
	grants := func(source string) *access.Set { return access.NewSet([]access.Grant{{Source: source}}) }
	everywhere := grants("everywhere")
	in := map[string][]*access.Set{"solar": {everywhere, grants("solar")}, "lunar": {everywhere}}
	s.SetGranted(func(space, _ string) []*access.Set { return in[space] })
	solar, lunar := s.Access("solar").Get(), s.Access("lunar").Get()
	if len(solar.Granted) != 2 || len(lunar.Granted) != 1 || solar.Granted[0] != lunar.Granted[0] || solar.Tenant != "solar" {
		t.Errorf("there are %+v and %+v", solar, lunar)
	}
	in = map[string][]*access.Set{"solar": {grants("everywhere"), grants("another")}, "lunar": {grants("everywhere")}} // read again
	s.SetGranted(func(space, _ string) []*access.Set { return in[space] })
	if s.Access("lunar").Get() != lunar || s.Access("solar").Get() == solar {
		t.Error("a space gets another state exactly if something else is granted there")
	}
}

func TestWhatASpaceCouldNotEnforceIsRefused(t *testing.T) {
	binding := func(subject rbacv1.Subject) v1alpha1.SpaceSpec {
		return v1alpha1.SpaceSpec{Access: v1alpha1.Access{AdditionalRoleBindings: []v1alpha1.AdditionalRoleBinding{{ClusterRoleName: "view", Subjects: []rbacv1.Subject{subject}}}}}
	}
	owners := func(owners ...v1alpha1.Owner) v1alpha1.SpaceSpec { return *owned(owners...) }
	alice := v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "alice"}
	for name, c := range map[string]struct {
		reason string
		spec   v1alpha1.SpaceSpec
		field  string
	}{
		"a kind":           {"nobody is that", owners(v1alpha1.Owner{Kind: "Robot", Name: "r"}), "spec.access.owners[0].kind"},
		"no name":          {"nobody is that", owners(v1alpha1.Owner{Kind: v1alpha1.UserKind}), "spec.access.owners[0].name"},
		"an account":       {"its namespace is missing", owners(v1alpha1.Owner{Kind: v1alpha1.ServiceAccountKind, Name: "robot"}), "spec.access.owners[0].name"},
		"one of the host":  {"its namespace is missing", owners(v1alpha1.Owner{Kind: v1alpha1.HostServiceAccountKind, Name: "robot"}), "spec.access.owners[0].name"},
		"twice":            {"which roles does it have", owners(alice, alice), "spec.access.owners[1]"},
		"a role":           {"it would be a path", owners(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "a", ClusterRoles: []string{"a/b"}}), "spec.access.owners[0].clusterRoles[0]"},
		"a label":          {"no role binding could have it", owners(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "a", Labels: map[string]string{"a": "b c"}}), "spec.access.owners[0].labels"},
		"an annotation":    {"no role binding could have it", owners(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "a", Annotations: map[string]string{"a b": ""}}), "spec.access.owners[0].annotations[a b]"},
		"an administrator": {"nobody is that", v1alpha1.SpaceSpec{Access: v1alpha1.Access{Administrators: []v1alpha1.Subject{{Kind: v1alpha1.UserKind}}}}, "spec.access.administrators[0].name"},
		"a subject":        {"RBAC knows no such kind", binding(rbacv1.Subject{Kind: "Robot", Name: "r"}), "spec.access.additionalRoleBindings[0].subjects[0].kind"},
		"a subject's home": {"RBAC wants it", binding(rbacv1.Subject{Kind: "ServiceAccount", Name: "r"}), "spec.access.additionalRoleBindings[0].subjects[0].namespace"},
		"a group":          {"RBAC knows one", binding(rbacv1.Subject{Kind: "User", APIGroup: "apps", Name: "r"}), "spec.access.additionalRoleBindings[0].subjects[0].apiGroup"},
		"Berth's label":    {"it is Berth's to set", v1alpha1.SpaceSpec{Namespaces: v1alpha1.Namespaces{Labels: map[string]string{"x.berth.dev/a": "b"}}}, "spec.namespaces.labels[x.berth.dev/a]"},
		"a tenant":         {"it is the name of an object", v1alpha1.SpaceSpec{TenantName: "a.b"}, "spec.tenantName"},
	} {
		s, err := New(&Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, errs := s.Read(&c.spec, field.NewPath("spec"))
		if !slices.ContainsFunc(errs, func(e *field.Error) bool { return e.Field == c.field }) {
			t.Errorf("%s (%s): the errors are %v, want one of %s", name, c.reason, errs, c.field)
		}
	}
	full := binding(rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "devs"})
	full.Access.Owners = []v1alpha1.Owner{alice, {Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:ns:robot", ClusterRoles: []string{"admin", "my:role"}}}
	s, err := New(&Options{})
	if err != nil {
		t.Fatal(err)
	}
	read(t, s, &full)
}

// Each space has to say these itself: an owner by default would own the spaces of all tenants.
func TestWhatIsEnforcedHasNoDefaults(t *testing.T) {
	for name, defaults := range map[string]v1alpha1.SpaceSpec{
		"tenantName": {TenantName: "solar"}, "access": {Access: v1alpha1.Access{Cordoned: ptr.To(true)}},
		"namespaces": {Namespaces: v1alpha1.Namespaces{Quota: ptr.To[int32](1)}}, "publications": {Publications: []string{"a"}},
	} {
		if _, err := New(&Options{SpaceDefaults: defaults}); err == nil || !strings.Contains(err.Error(), "spaceDefaults."+name+": Forbidden: set this field in each space instead") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutEnforcedLeavesTheRest(t *testing.T) {
	spec := owned(v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "alice"})
	spec.Publications, spec.Isolation = []string{"a"}, v1alpha1.Dedicated
	if diff := cmp.Diff(v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}, WithoutEnforced(*spec)); diff != "" {
		t.Error(diff)
	}
}
