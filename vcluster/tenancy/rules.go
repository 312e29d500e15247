// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/vcluster/inside"
)

// resolver lists what somebody may do, as `kubectl auth can-i --list` shows it.
type resolver struct {
	tenant *Authorizer
	rbac   authorizer.RuleResolver
}

// RulesFor returns the rules of the state and of RBAC.
func (r *resolver) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	rules := r.tenant.source.Rules()
	resources, paths, incomplete, err := grantedRules{r.tenant.source, r.rbac}.RulesFor(ctx, u, namespace)
	incomplete = incomplete || r.tenant.afterRBAC != nil // nobody can list what it allows
	if _, visitor := access.VisitorOf(u); visitor {
		if rules.Cordoned() {
			return readable(resources), readablePaths(paths), incomplete, err
		}
		return resources, paths, incomplete, err
	}
	if !rules.Enforces() {
		return resources, paths, incomplete, err
	}
	promoted := r.tenant.promoted(rules, u)
	switch s := rules.StandingOf(u, promoted); {
	case s.Administrator:
		resources, paths = append(resources, allOf(everything(), everything())), append(paths, allPaths())
	case s.SpaceAdmin:
		resources = append(resources, allOf([]string{""}, coreResources()), allOf([]string{"metrics.k8s.io"}, []string{"pods"}), allOf(r.groups(), everything()))
		paths = append(paths, allPaths())
	case s.Owner:
		resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"namespaces"}})
	}
	if access.IsTenants(namespace) {
		more, _, unknown, boundErr := r.tenant.bound(rules, u, promoted).RulesFor(ctx, u, namespace)
		resources, incomplete, err = append(resources, more...), incomplete || unknown, errors.Join(err, boundErr)
	}
	if rules.Cordoned() && !inside.Is(ctx) {
		return readable(resources), readablePaths(paths), incomplete, err
	}
	return resources, paths, incomplete, err
}

// groups returns all API groups but those with nodes.
func (r *resolver) groups() []string {
	var groups []string
	for _, v := range legacyscheme.Scheme.PrioritizedVersionsAllGroups() {
		groups = append(groups, v.Group)
	}
	groups = append(groups, "apiextensions.k8s.io", "apiregistration.k8s.io", v1alpha1.GroupVersion.Group)
	if r.tenant.groups != nil {
		groups = append(groups, r.tenant.groups()...)
	}
	slices.Sort(groups)
	return slices.DeleteFunc(slices.Compact(groups), func(g string) bool { return g == "" || g == "metrics.k8s.io" })
}

func everything() []string { return []string{"*"} }

func allOf(groups, resources []string) authorizer.ResourceRuleInfo {
	return &authorizer.DefaultResourceRuleInfo{Verbs: everything(), APIGroups: groups, Resources: resources}
}

func allPaths() authorizer.NonResourceRuleInfo {
	return &authorizer.DefaultNonResourceRuleInfo{Verbs: everything(), NonResourceURLs: everything()}
}

// coreResources are those of the group of nodes, without nodes.
func coreResources() []string {
	return []string{
		"bindings", "componentstatuses", "configmaps", "endpoints", "events", "groups", "limitranges", "namespaces", "namespaces/finalize", "namespaces/status",
		"persistentvolumeclaims", "persistentvolumeclaims/status", "persistentvolumes", "persistentvolumes/status",
		"pods", "pods/attach", "pods/binding", "pods/ephemeralcontainers", "pods/eviction", "pods/exec", "pods/log", "pods/portforward", "pods/proxy",
		"pods/resize", "pods/status", "podtemplates", "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status",
		"resourcequotas", "resourcequotas/status", "secrets", "serviceaccounts", "serviceaccounts/token", "services", "services/proxy", "services/status", "users",
	}
}

// readable returns what rules still allow in a cordoned space.
func readable(rules []authorizer.ResourceRuleInfo) []authorizer.ResourceRuleInfo {
	var left []authorizer.ResourceRuleInfo
	for _, rule := range rules {
		if verbs := readableVerbs(rule); len(verbs) > 0 {
			left = append(left, &authorizer.DefaultResourceRuleInfo{
				Verbs: verbs, APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
			})
		}
	}
	return left
}

func readableVerbs(rule authorizer.ResourceRuleInfo) []string {
	safe := []string{"get", "list", "watch", "delete", "deletecollection"}
	selfReviews := []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
	if !slices.ContainsFunc(rule.GetResources(), func(r string) bool { return !slices.Contains(selfReviews, r) }) {
		return rule.GetVerbs()
	}
	if slices.Contains(rule.GetVerbs(), "*") {
		return safe
	}
	return slices.DeleteFunc(slices.Clone(rule.GetVerbs()), func(v string) bool { return !slices.Contains(safe, v) })
}

func readablePaths(rules []authorizer.NonResourceRuleInfo) []authorizer.NonResourceRuleInfo {
	left := make([]authorizer.NonResourceRuleInfo, 0, len(rules))
	for _, rule := range rules {
		if slices.Contains(rule.GetVerbs(), "*") || slices.Contains(rule.GetVerbs(), "get") {
			left = append(left, &authorizer.DefaultNonResourceRuleInfo{Verbs: []string{"get"}, NonResourceURLs: rule.GetNonResourceURLs()})
		}
	}
	return left
}
