// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/identity"
)

// identityOf returns who a webhook says that a user is. Roles become groups: ROLE, and PROJECT:ROLE if they are of a project. The error is
// a [*Refused].
func (w *Webhook) identityOf(u user.Info) (*identity.Identity, error) {
	extra := u.GetExtra()
	tenant, err := single(extra[w.TenantExtra])
	switch {
	case err != nil:
		return nil, err
	case tenant == resolve.System:
		// Whoever can name a tenant in an identity service, such as a domain of Keystone, would reach all spaces.
		return nil, refused("your token names the tenant %s, which users of the webhook can't be of; ask your admin for a client certificate", tenant)
	}
	groups := slices.Concat(u.GetGroups(), w.groups(extra))
	slices.Sort(groups) // webhooks list them in any order
	groups = slices.DeleteFunc(slices.Compact(groups), func(group string) bool { return group == user.AllAuthenticated || group == "" })
	who := &identity.Identity{Name: u.GetName(), UID: u.GetUID(), Groups: groups, Extra: kept(extra), Tenant: tenant, Proof: identity.Webhook}
	if err := acceptable(who); err != nil {
		return nil, err
	}
	return who, nil
}

// single returns the tenant of an extra field; "" if there is none.
func single(values []string) (string, error) {
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1 || values[0] == "":
		return "", refused("your token names %d tenants, or an empty one; ask your admin for a token of one tenant", len(values))
	}
	return values[0], nil
}

// groups returns the groups of the roles. A role with a colon in its name has only the group with a project, so that it can't pass for the
// role of a project.
func (w *Webhook) groups(extra map[string][]string) (groups []string) {
	project, _ := single(extra[w.ProjectExtra])
	for _, role := range extra[w.RolesExtra] {
		if role == "" {
			continue
		}
		if !strings.Contains(role, ":") {
			groups = append(groups, role)
		}
		if project != "" && !strings.Contains(project, ":") {
			groups = append(groups, project+":"+role)
		}
	}
	return groups
}
