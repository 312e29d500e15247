// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"

	apiextensionslisters "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/definitions"
)

// Tenancy is what one run of a control plane enforces. Without a source, it does nothing.
type Tenancy struct {
	source     *access.Source
	grants     *access.Source // source, or what holds grants alone; it may be nil
	plugin     *Plugin
	authorizer *Authorizer
	rules      authorizer.RuleResolver
	afterRBAC  authorizer.Authorizer
	sessions   sessions
	accesses   *tenantAccesses // nil until FollowTenantAccesses
}

// New returns the tenancy of a control plane whose state source holds. If it is nil, granted may hold rights of users whom the platform
// knows, which is all that is then enforced. shared, if it isn't nil, has the definitions that the platform shares with the space.
// afterRBAC, if it isn't nil, decides on what RBAC doesn't allow.
func New(source, granted *access.Source, shared *definitions.Source, afterRBAC authorizer.Authorizer) *Tenancy {
	if source != nil {
		granted = source
	}
	return &Tenancy{source: source, grants: granted, afterRBAC: afterRBAC, plugin: newPlugin(source, shared), sessions: newSessions()}
}

// Source returns what holds the state; nil if there is none.
func (t *Tenancy) Source() *access.Source { return t.source }

// Grants returns what holds the rights of users whom the platform knows; nil if there is nothing.
func (t *Tenancy) Grants() *access.Source { return t.grants }

// Plugin returns the admission plugin, which needs [Tenancy.Connect] before the first request.
func (t *Tenancy) Plugin() (admission.Interface, error) { return t.plugin, nil }

// Authorize returns what decides on requests and lists rules, given what does so without a tenant.
func (t *Tenancy) Authorize(f informers.SharedInformerFactory, without authorizer.Authorizer, rules authorizer.RuleResolver) (
	authorizer.Authorizer, authorizer.RuleResolver, error,
) {
	if t.grants == nil {
		return without, rules, nil
	}
	if t.source == nil {
		all, rules, err := withGrants(t.grants, without, rules)
		t.sessions.authorizer, t.sessions.source = all, t.grants
		return all, rules, err
	}
	t.authorizer = NewAuthorizer(t.source, f)
	t.authorizer.afterRBAC = t.afterRBAC
	all, rules, err := t.authorizer.WithRBAC(f)
	t.sessions.authorizer, t.sessions.source, t.rules = all, t.source, rules
	return all, rules, err
}

// Connect gives the admission plugin what it reads by. It must follow Authorize.
func (t *Tenancy) Connect(f informers.SharedInformerFactory, loopback *rest.Config) error {
	if t.source == nil {
		return nil
	}
	objects, err := metadata.NewForConfig(loopback)
	if err != nil {
		return fmt.Errorf("make metadata client: %w", err)
	}
	t.plugin.all, t.plugin.rules = t.sessions.authorizer, t.rules
	t.plugin.tenant, t.plugin.namespaces, t.plugin.objects = t.authorizer, f.Core().V1().Namespaces().Lister(), objects
	return nil
}

// ListGroups has the groups of custom resources in lists of what somebody may do. It must be called before the first request.
func (t *Tenancy) ListGroups(definitions apiextensionslisters.CustomResourceDefinitionLister) {
	if t.source == nil {
		return
	}
	t.authorizer.groups = func() []string {
		all, err := definitions.List(labels.Everything())
		if err != nil {
			return nil
		}
		groups := make([]string, len(all))
		for i, d := range all {
			groups[i] = d.Spec.Group
		}
		return groups
	}
}
