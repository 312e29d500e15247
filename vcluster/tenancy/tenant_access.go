// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/space/v1alpha1"
	"github.com/berth-dev/berth/vcluster/inside"
)

// maxAsked limits how many rights are looked up one by one that no rule lists: those that the webhook gives, or a policy for all subresources.
const maxAsked = 32

// anyNamespace stands for each namespace, in what somebody may do. No namespace has this name.
const anyNamespace = "*"

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
	return p.mayGive(ctx, u, object.Spec.Rules, path.Child("rules"))
}

// given is rights of one rule in one namespace.
type given struct {
	rights []rbacv1.PolicyRule
	path   *field.Path
}

// mayGive returns an error if somebody doesn't have all rights of some rules. As RBAC does with roles, it compares them with what he may do,
// which is looked up once for each namespace.
func (p *Plugin) mayGive(ctx context.Context, u user.Info, rules []v1alpha1.TenantAccessRule, path *field.Path) error {
	standing := p.tenant.standing(u)
	if standing.Administrator || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	wanted, left := map[string][]given{}, maxAsked
	for i := range rules {
		rights, namespaces := rightsOf(&rules[i], standing), rules[i].Namespaces
		if len(namespaces) == 0 {
			namespaces = []string{metav1.NamespaceAll, anyNamespace} // a policy for what is in no namespace is for the first alone
		}
		for _, namespace := range namespaces {
			wanted[namespace] = append(wanted[namespace], given{rights, path.Index(i)})
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(wanted)) {
		own := p.rightsIn(ctx, u, namespace)
		for _, w := range wanted[namespace] {
			if err := p.hasAll(ctx, u, own, w, namespace, &left); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasAll returns an error if somebody with rights of his own in a namespace doesn't have others. It looks up at most left that his own don't
// include.
func (p *Plugin) hasAll(ctx context.Context, u user.Info, own []rbacv1.PolicyRule, w given, namespace string, left *int) error {
	for i := range w.rights {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, missing := rbacvalidation.Covers(own, w.rights[i:i+1])
		for j := range missing {
			if *left--; *left < 0 {
				return fmt.Errorf("%s: more than %d of these rights are not yours by a role of the space, and no more are looked up elsewhere; use several objects, or * for all", w.path, maxAsked)
			}
			if err := p.hasOne(ctx, u, &missing[j], namespace, w.path); err != nil {
				return err
			}
		}
	}
	return nil
}

// rightsOf returns the rights of a rule that an admin of the space must have by roles to give them.
func rightsOf(r *v1alpha1.TenantAccessRule, standing access.Standing) (rights []rbacv1.PolicyRule) {
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			if standing.SpaceAdmin && (len(r.Namespaces) > 0 || !access.AboutNodes(group, resource)) {
				continue // no node is in a namespace
			}
			rights = append(rights, rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: r.ResourceNames})
		}
	}
	return rights
}

// rightsIn returns what somebody may do in a namespace. What can't be read is missing, so that nobody gives it.
func (p *Plugin) rightsIn(ctx context.Context, u user.Info, namespace string) []rbacv1.PolicyRule {
	listed, _, _, _ := p.rules.RulesFor(ctx, u, namespace) //nolint:dogsled // the rest is of no resources
	rights := make([]rbacv1.PolicyRule, 0, len(listed))
	for _, r := range listed {
		rights = append(rights, rbacv1.PolicyRule{Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames()})
	}
	return rights
}

// hasOne returns an error if somebody doesn't have a single right.
func (p *Plugin) hasOne(ctx context.Context, u user.Info, right *rbacv1.PolicyRule, namespace string, path *field.Path) error {
	verb, group, resource, name := right.Verbs[0], right.APIGroups[0], right.Resources[0], ""
	if len(right.ResourceNames) > 0 {
		name = right.ResourceNames[0]
	}
	if decision, _, err := p.all.Authorize(ctx, attributes(u, verb, group, resource, name, namespace)); err != nil || decision != authorizer.DecisionAllow {
		return fmt.Errorf("%s: you can't give the right to %s %s of the API group %q, because you don't have it; ask an admin of the space", path, verb, resource, group)
	}
	return nil
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
