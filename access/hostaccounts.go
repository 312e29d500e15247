// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/api/v1alpha1"
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
