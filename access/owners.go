// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	adminRole            = "admin"
	serviceAccountPrefix = "system:serviceaccount:"
	serviceAccountGroups = "system:serviceaccounts"
)

// subject is somebody who makes a request.
type subject struct {
	name   string
	groups []string
}

// subjectOf returns the subject of a user. A ServiceAccount is in its groups, even if who impersonates it names others.
func subjectOf(u user.Info) subject {
	s := subject{name: u.GetName(), groups: u.GetGroups()}
	if namespace, _, ok := serviceAccount(s.name); ok {
		s.groups = append(slices.Clip(s.groups), serviceAccountGroups, serviceAccountGroups+":"+namespace)
	}
	if namespace, ok := hostAccount(s.name); ok {
		s.groups = append(slices.Clip(s.groups), hostGroups(namespace)...)
	}
	return s
}

// serviceAccount returns the namespace and the name of a ServiceAccount that authenticates by a name.
func serviceAccount(name string) (namespace, account string, ok bool) {
	rest, ok := strings.CutPrefix(name, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, account, ok = strings.Cut(rest, ":")
	return namespace, account, ok && namespace != "" && account != "" && !strings.Contains(account, ":")
}

// is reports whether the subject is the one of a kind and name, or in the group.
func (s subject) is(kind v1alpha1.SubjectKind, name string) bool {
	switch kind {
	case v1alpha1.GroupKind:
		return slices.Contains(s.groups, name)
	case v1alpha1.HostServiceAccountKind:
		u := HostUser(name)
		return u != nil && s.name == u.Name
	default:
		return s.name == name
	}
}

// in reports whether a subject may count as an owner (O6).
func (s subject) in(scope v1alpha1.OwnerScope) bool {
	if len(scope.Groups) == 0 && len(scope.Users) == 0 {
		return true
	}
	if slices.Contains(scope.Users, s.name) || slices.ContainsFunc(s.groups, func(g string) bool { return slices.Contains(scope.Groups, g) }) {
		return true
	}
	namespace, account, ok := serviceAccount(s.name)
	return ok && slices.Contains(scope.Users, serviceAccountGroups+":"+namespace+":"+account)
}

// clusterRoles returns the roles of an owner.
func clusterRoles(o *v1alpha1.Owner) []string {
	if len(o.ClusterRoles) == 0 {
		return DefaultRoles()
	}
	return o.ClusterRoles
}

// DefaultRoles returns the ClusterRoles of owners for whom none are set, and of ServiceAccounts that are promoted.
func DefaultRoles() []string { return []string{adminRole, v1alpha1.NamespaceDeleterRole} }

// Standing is what somebody is in a space.
type Standing struct {
	// Administrator says that all rights in the space are theirs.
	Administrator bool
	// Owner says that they are an owner, and count as one.
	Owner bool
	// Admin says that they are an owner with the role admin, which is what a ServiceAccount becomes that is promoted.
	Admin bool
	// SpaceAdmin says that they may do everything in the space but what is about nodes.
	SpaceAdmin bool
}

// MayPromote reports whether they may make a ServiceAccount an owner: nobody gives rights that they don't have.
func (s Standing) MayPromote() bool { return s.Administrator || s.Admin }

// StandingOf returns what a user is. A user who is a ServiceAccount is promoted if it has the label for that; whether the space has
// promotions is decided here.
func (r *Rules) StandingOf(u user.Info, promoted bool) Standing {
	who := subjectOf(u)
	var s Standing
	for _, a := range r.state.Access.Administrators {
		s.Administrator = s.Administrator || who.is(a.Kind, a.Name)
	}
	if promoted && r.Promotes() {
		s.Owner, s.Admin = true, true
	}
	if who.in(r.state.Access.OwnerScope) {
		for i := range r.state.Access.Owners {
			if o := &r.state.Access.Owners[i]; who.is(o.Kind, o.Name) {
				s.Owner = true
				s.Admin = s.Admin || slices.Contains(clusterRoles(o), adminRole)
			}
		}
	}
	s.SpaceAdmin = s.Admin && r.state.Access.OwnerProfile != v1alpha1.NamespaceAdmin
	return s
}

// Promotes reports whether ServiceAccounts of the space can be promoted.
func (r *Rules) Promotes() bool { return r.state.Access.ServiceAccountPromotion == v1alpha1.Enabled }

// HasOwner reports whether credentials that are issued to an owner are good: whether it is still an owner, or an administrator.
func (r *Rules) HasOwner(kind v1alpha1.SubjectKind, name string) bool {
	return slices.ContainsFunc(r.state.Access.Owners, func(o v1alpha1.Owner) bool { return o.Kind == kind && o.Name == name }) ||
		slices.Contains(r.state.Access.Administrators, v1alpha1.Subject{Kind: kind, Name: name})
}

// OwnerIn returns an owner, an administrator, or a subject of an additional role binding that is a ServiceAccount of a namespace, or the
// group of all of them; "" if there is none. Whoever creates such a namespace has the rights of that subject.
func (r *Rules) OwnerIn(namespace string) string {
	var names []string
	for _, o := range r.state.Access.Owners {
		if o.Kind != v1alpha1.HostServiceAccountKind {
			names = append(names, o.Name)
		}
	}
	for _, a := range r.state.Access.Administrators {
		if a.Kind != v1alpha1.HostServiceAccountKind {
			names = append(names, a.Name)
		}
	}
	for _, binding := range r.state.Access.AdditionalRoleBindings {
		for _, s := range binding.Subjects {
			if s.Kind == rbacv1.ServiceAccountKind {
				names = append(names, serviceAccountPrefix+s.Namespace+":"+s.Name)
			}
			names = append(names, s.Name)
		}
	}
	for _, name := range names {
		if in, _, ok := serviceAccount(name); ok && in == namespace || name == serviceAccountGroups+":"+namespace {
			return name
		}
	}
	return ""
}
