// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const anything = "*"

// Allows reports whether a rule allows a request.
func (r *GrantRule) Allows(a authorizer.Attributes) bool {
	verb := a.GetVerb()
	if IsImpersonation(verb) || !has(r.Verbs, verb) {
		return false
	}
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(r.Paths, func(path string) bool { return pathMatches(path, a.GetPath()) })
	}
	return has(r.APIGroups, a.GetAPIGroup()) &&
		slices.ContainsFunc(r.Resources, func(resource string) bool { return resourceMatches(resource, a.GetResource(), a.GetSubresource()) }) &&
		(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName())) &&
		(len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, a.GetNamespace()))
}

func has(all []string, one string) bool {
	return slices.Contains(all, anything) || slices.Contains(all, one)
}

// resourceMatches is as in RBAC, and PLURAL/* stands for a resource with its subresources.
func resourceMatches(rule, resource, subresource string) bool {
	if rule == anything {
		return true
	}
	main, sub, hasSub := strings.Cut(rule, "/")
	switch {
	case main != anything && main != resource:
		return false
	case sub == anything:
		return true
	case !hasSub:
		return subresource == ""
	}
	return sub == subresource
}

func pathMatches(rule, path string) bool {
	if prefix, ok := strings.CutSuffix(rule, anything); ok {
		return strings.HasPrefix(path, prefix)
	}
	return rule == path
}

// basics are the rights of all who have any: clients need them to find out what there is, and what they may do.
func basics() []GrantRule {
	return []GrantRule{
		{Verbs: []string{"get"}, Paths: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", "/version", "/version/", "/healthz", "/livez", "/readyz"}},
		{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
		{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
	}
}

// AllowedBy returns which of the grants of a client allows a request; "" if none does.
func AllowedBy(own []*Grant, a authorizer.Attributes) string {
	if len(own) == 0 {
		return ""
	}
	for _, g := range own {
		if slices.ContainsFunc(g.Rules, func(r GrantRule) bool { return r.Allows(a) }) {
			return g.Source
		}
	}
	if slices.ContainsFunc(basics(), func(r GrantRule) bool { return r.Allows(a) }) {
		return own[0].Source
	}
	return ""
}

// RulesOf returns what the grants of a client allow in a namespace, as `kubectl auth can-i --list` shows it.
func RulesOf(own []*Grant, namespace string) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo) {
	if len(own) == 0 {
		return nil, nil
	}
	all := basics()
	for _, g := range own {
		all = append(all, g.Rules...)
	}
	for _, r := range all {
		if len(r.Paths) > 0 {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: r.Verbs, NonResourceURLs: r.Paths})
		}
		if len(r.Resources) > 0 && (len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, namespace)) {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{
				Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames,
			})
		}
	}
	return resources, paths
}
