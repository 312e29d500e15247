// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// access decides as the space does that a call is for.
type access struct{}

var (
	_ admission.MutationInterface   = access{}
	_ admission.ValidationInterface = access{}
	_ authorizer.Authorizer         = access{}
	_ authorizer.RuleResolver       = access{}
	_ authenticator.Request         = access{}
	_ http.RoundTripper             = access{}
)

// Handles every operation; the space's own plugins say what they do.
func (access) Handles(admission.Operation) bool { return true }

func (access) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	space, err := spaceOf(ctx)
	if err != nil {
		return err
	}
	if next, ok := space.Admission.(admission.MutationInterface); ok && next.Handles(a.GetOperation()) {
		return next.Admit(ctx, a, o)
	}
	return nil
}

func (access) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	space, err := spaceOf(ctx)
	if err != nil {
		return err
	}
	if next, ok := space.Admission.(admission.ValidationInterface); ok && next.Handles(a.GetOperation()) {
		return next.Validate(ctx, a, o)
	}
	return nil
}

func (access) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	space, err := spaceOf(ctx)
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	return space.Authorizer.Authorize(ctx, a)
}

func (access) ConditionsAwareAuthorize(ctx context.Context, a authorizer.Attributes) authorizer.ConditionsAwareDecision {
	space, err := spaceOf(ctx)
	if err != nil {
		return authorizer.ConditionsAwareDecisionFromParts(authorizer.DecisionDeny, "", err)
	}
	return space.Authorizer.ConditionsAwareAuthorize(ctx, a)
}

func (access) EvaluateConditions(
	ctx context.Context, decision authorizer.ConditionsAwareDecision, data authorizer.ConditionsData,
) (authorizer.Decision, string, error) {
	space, err := spaceOf(ctx)
	if err != nil {
		return authorizer.DecisionDeny, "", err
	}
	return space.Authorizer.EvaluateConditions(ctx, decision, data)
}

func (access) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	space, err := spaceOf(ctx)
	if err != nil {
		return nil, nil, true, err
	}
	return space.RuleResolver.RulesFor(ctx, u, namespace)
}

func (access) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	space, err := spaceOf(r.Context())
	if err != nil {
		return nil, false, err
	}
	return space.Authenticator.AuthenticateRequest(r)
}

// RoundTrip calls the space's API in process.
func (access) RoundTrip(r *http.Request) (*http.Response, error) {
	space, err := spaceOf(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return space.Loopback.RoundTrip(r)
}
