// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/vcluster/inside"
)

// maxCombinations limits how many rights of one rule are looked up.
const maxCombinations = 4096

// checkTenantAccess lets nobody give users of other tenants rights that he doesn't have, as RBAC does with roles (Z5). Visitors give none
// at all: what they gave would outlast what they were given.
func (p *Plugin) checkTenantAccess(ctx context.Context, a admission.Attributes) error {
	object, ok := a.GetObject().(*v1alpha1.TenantAccess)
	if !ok || a.GetOperation() == admission.Delete {
		return nil
	}
	if old, ok := a.GetOldObject().(*v1alpha1.TenantAccess); ok && a.GetOperation() == admission.Update && apiequality.Semantic.DeepEqual(old.Spec, object.Spec) {
		return nil
	}
	if inside.Is(ctx) {
		return errors.New("spec: controllers give no access to other tenants; let an admin of the space write it")
	}
	u, path := a.GetUserInfo(), field.NewPath("spec")
	if _, visitor := access.VisitorOf(u); visitor || u == nil {
		return errors.New("spec: users of other tenants can't give others access to this space; ask an admin of it")
	}
	for i, s := range object.Spec.Subjects {
		if s.Tenant == p.source.Get().Tenant {
			return fmt.Errorf("%s: %s is the tenant of this space; give its users rights with a RoleBinding or ClusterRoleBinding", path.Child("subjects").Index(i).Child("tenant"), s.Tenant)
		}
	}
	for i := range object.Spec.Rules {
		if err := p.mayGive(ctx, u, &object.Spec.Rules[i], path.Child("rules").Index(i)); err != nil {
			return err
		}
	}
	return nil
}

// mayGive returns an error if somebody doesn't have all rights of a rule.
func (p *Plugin) mayGive(ctx context.Context, u user.Info, r *v1alpha1.TenantAccessRule, path *field.Path) error {
	if standing := p.tenant.standing(u); standing.Administrator || standing.SpaceAdmin && len(r.Namespaces) > 0 {
		return nil // no node is in a namespace
	}
	names, namespaces := orNone(r.ResourceNames), orNone(r.Namespaces)
	if n := len(r.Verbs) * len(r.APIGroups) * len(r.Resources) * len(names) * len(namespaces); n > maxCombinations {
		return fmt.Errorf("%s: it has %d combinations of verbs, groups, resources, names, and namespaces, and may have %d; use several rules, or *", path, n, maxCombinations)
	}
	for _, verb := range r.Verbs {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, name := range names {
					for _, namespace := range namespaces {
						right := attributes(u, verb, group, resource, name, namespace)
						if decision, _, err := p.all.Authorize(ctx, right); err != nil || decision != authorizer.DecisionAllow {
							return fmt.Errorf("%s: you can't give the right to %s %s of the API group %q, because you don't have it; ask an admin of the space", path, verb, resource, group)
						}
					}
				}
			}
		}
	}
	return nil
}

func orNone(all []string) []string {
	if len(all) == 0 {
		return []string{""}
	}
	return all
}

func attributes(u user.Info, verb, group, resource, name, namespace string) authorizer.Attributes {
	main, sub, _ := strings.Cut(resource, "/")
	return authorizer.AttributesRecord{
		User: u, Verb: verb, APIGroup: group, APIVersion: "*", Resource: main, Subresource: sub, Name: name, Namespace: namespace, ResourceRequest: true,
	}
}

// checkDefinition refuses custom resources in the group that the space itself serves, where nobody would find them.
func checkDefinition(_ context.Context, a admission.Attributes) error {
	definition, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok || a.GetOperation() != admission.Create || definition.Spec.Group != v1alpha1.GroupVersion.Group {
		return nil
	}
	return fmt.Errorf("spec.group: the space itself serves %s; use another group", definition.Spec.Group)
}
