// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
)

// hostPrefix begins the names that only ServiceAccounts of the host have.
const hostPrefix = "berth:host:"

// HostUser returns the user that a ServiceAccount of the host is in a space (O9); nil if the name doesn't have the form
// system:serviceaccount:NAMESPACE:NAME.
func HostUser(name string) *user.DefaultInfo {
	namespace, account, ok := serviceAccount(name)
	if !ok {
		return nil
	}
	return &user.DefaultInfo{
		Name:   v1alpha1.HostServiceAccountUser + namespace + ":" + account,
		Groups: append([]string{user.AllAuthenticated}, hostGroups(namespace)...),
	}
}

// UserOf returns the user that an identity is in a space; nil if it is nil or has no valid name.
func UserOf(who *identity.Identity) user.Info {
	switch {
	case who == nil:
		return nil
	case who.Proof == identity.HostServiceAccount:
		if u := HostUser(who.Name); u != nil {
			return u
		}
		return nil
	case who.Visitor:
		return who.User()
	}
	return known(who)
}

func hostGroups(namespace string) []string {
	return []string{v1alpha1.HostServiceAccountsGroup, v1alpha1.HostServiceAccountsGroup + ":" + namespace}
}

// hostAccount returns the namespace of a ServiceAccount of the host that has a user's name in a space.
func hostAccount(user string) (namespace string, ok bool) {
	rest, ok := strings.CutPrefix(user, v1alpha1.HostServiceAccountUser)
	if !ok {
		return "", false
	}
	namespace, _, ok = serviceAccount(serviceAccountPrefix + rest)
	return namespace, ok
}

// IsHostUser reports whether a user has a name that only ServiceAccounts of the host have, or is in a group of theirs.
func IsHostUser(u user.Info) bool {
	return slices.ContainsFunc(append([]string{u.GetName()}, u.GetGroups()...), func(name string) bool { return strings.HasPrefix(name, hostPrefix) })
}

// Accepts reports whether the space lets an identity in: a ServiceAccount of the host as long as it owns the space (O9), others if they are
// of the space's tenant, or system users (Z1, Z2). It doesn't say what they may do there.
func (r *Rules) Accepts(who *identity.Identity) bool {
	switch {
	case who.Proof == identity.HostServiceAccount:
		return r.HasHostAccount(who.Name)
	case who.Visitor, IsReserved(who.User()):
		return false
	case who.Tenant == v1alpha1.SystemTenant:
		return true
	}
	return who.Tenant != "" && who.Tenant == r.state.Tenant
}

// HasHostAccount reports whether a ServiceAccount of the host is an administrator, or an owner that counts.
func (r *Rules) HasHostAccount(name string) bool {
	u := HostUser(name)
	if u == nil {
		return false
	}
	if slices.Contains(r.state.Access.Administrators, v1alpha1.Subject{Kind: v1alpha1.HostServiceAccountKind, Name: name}) {
		return true
	}
	return r.HasOwner(v1alpha1.HostServiceAccountKind, name) && subjectOf(u).in(r.state.Access.OwnerScope)
}
