// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
)

// VisitorOf returns which user of another tenant has a user's name in a space. Only identities of visitors have such names, and those
// whom somebody impersonates.
func VisitorOf(u user.Info) (visitor Client, ok bool) {
	if u == nil {
		return Client{}, false
	}
	rest, ok := strings.CutPrefix(u.GetName(), identity.VisitorPrefix)
	if !ok {
		return Client{}, false
	}
	tenant, name, named := strings.Cut(rest, ":")
	if !named {
		return Client{}, true // of no tenant: it has no grants
	}
	prefix := identity.VisitorPrefix + tenant + ":"
	visitor = Client{Tenant: tenant, Name: name}
	for _, group := range u.GetGroups() {
		if own, ok := strings.CutPrefix(group, prefix); ok {
			visitor.Groups = append(visitor.Groups, own)
		}
	}
	return visitor, true
}

// isVisitors reports whether a user has a name of a visitor, or is in a group of visitors.
func isVisitors(u user.Info) bool {
	return slices.ContainsFunc(append([]string{u.GetName()}, u.GetGroups()...), func(name string) bool { return strings.HasPrefix(name, identity.VisitorPrefix) })
}

// IsReserved reports whether a user has a name, or is in a group, that only clients have whom the platform knows.
func IsReserved(u user.Info) bool { return IsHostUser(u) || isVisitors(u) }

// ClientOf returns the client that an identity is of.
func ClientOf(who *identity.Identity) Client {
	if who.Visitor {
		if visitor, ok := VisitorOf(who.User()); ok {
			return visitor
		}
		return Client{}
	}
	return Client{Tenant: who.Tenant, Name: who.Name, Groups: who.Groups}
}

// Accepts reports whether the space lets an identity in: a visitor as long as a grant is for it (Z4, Z5), and others as the rules say.
func (s *Source) Accepts(who *identity.Identity, now time.Time) bool {
	if !who.Visitor {
		return s.Rules().Accepts(who)
	}
	c := ClientOf(who)
	state := s.Get()
	return c.Tenant == who.Tenant && c.Tenant != state.Tenant && c.Tenant != v1alpha1.SystemTenant && len(s.grantsFor(c, true, now)) > 0
}

// Authorize decides on a request by the grants. Those of visitors are all their rights, so that nothing outlasts them; those of others whom
// the platform knows are in addition to what RBAC allows. Cordons hold for all.
func (s *Source) Authorize(a authorizer.Attributes, now time.Time) (authorizer.Decision, string) {
	c, visitor, ok := clientOfUser(a.GetUser())
	if !ok {
		return authorizer.DecisionNoOpinion, ""
	}
	if err := s.Rules().CheckCordon(a); err != nil {
		return authorizer.DecisionDeny, err.Error()
	}
	if by := AllowedBy(s.grantsFor(c, visitor, now), a); by != "" {
		return authorizer.DecisionAllow, by
	}
	if !visitor {
		return authorizer.DecisionNoOpinion, ""
	}
	return authorizer.DecisionDeny, "no TenantAccess or authorization policy allows this; ask an admin of the space for a TenantAccess"
}

// RulesFor returns what the grants allow a user in a namespace. If it is a visitor, these are all its rights.
func (s *Source) RulesFor(u user.Info, namespace string, now time.Time) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, visitor bool) {
	c, visitor, ok := clientOfUser(u)
	if !ok {
		return nil, nil, false
	}
	resources, paths = RulesOf(s.grantsFor(c, visitor, now), namespace)
	return resources, paths, visitor
}
