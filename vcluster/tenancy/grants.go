// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"

	"github.com/berth-dev/berth/access"
)

// byGrants decides on requests of users whom the platform knows (Z4, Z5, Z6). No other authorizer is asked about those of other tenants.
func byGrants(source *access.Source) union.NamedAuthorizer {
	return union.NamedAuthorizer{AuthorizerName: "berth.dev/grants", Authorizer: authorizer.AuthorizerFunc(
		func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			decision, reason := source.Authorize(a, time.Now())
			return decision, reason, nil
		})}
}

// withGrants returns what the grants and then another authorizer decide, and the resolver of the rules of both.
func withGrants(source *access.Source, next authorizer.Authorizer, rules authorizer.RuleResolver) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	all, err := union.New(byGrants(source), union.NamedAuthorizer{AuthorizerName: "kubernetes.io", Authorizer: next})
	if err != nil {
		return nil, nil, fmt.Errorf("combine authorizers: %w", err)
	}
	return all, grantedRules{source, rules}, nil
}

// grantedRules lists what grants allow, and what next does.
type grantedRules struct {
	source *access.Source
	next   authorizer.RuleResolver
}

// RulesFor implements [authorizer.RuleResolver].
func (r grantedRules) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	granted, grantedPaths, visitor := r.source.RulesFor(u, namespace, time.Now())
	if visitor {
		return granted, grantedPaths, false, nil
	}
	resources, paths, incomplete, err := r.next.RulesFor(ctx, u, namespace)
	return append(resources, granted...), append(paths, grantedPaths...), incomplete, err
}
