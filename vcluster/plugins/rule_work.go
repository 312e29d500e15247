// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/informers"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/kubernetes/pkg/apis/rbac"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/counts"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// ruleWork bounds what upstream collects of the rules that bindings give somebody, once for each binding: who asks what they may, or
// makes a role, has all of them in memory, and compared with each combination of the new role.
type ruleWork struct {
	authorizer.RuleResolver
	roles               rbaclisters.RoleLister
	clusterRoles        rbaclisters.ClusterRoleLister
	roleBindings        rbaclisters.RoleBindingLister
	clusterRoleBindings rbaclisters.ClusterRoleBindingLister
}

// NewRuleWork bounds the work of the resolver next. It reads roles and bindings from the informers.
func NewRuleWork(next authorizer.RuleResolver, f informers.SharedInformerFactory) *ruleWork {
	listers := f.Rbac().V1()
	return &ruleWork{next, listers.Roles().Lister(), listers.ClusterRoles().Lister(), listers.RoleBindings().Lister(), listers.ClusterRoleBindings().Lister()}
}

// RulesFor refuses to collect too many.
func (w *ruleWork) RulesFor(ctx context.Context, u user.Info, namespace string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	if err := w.check(namespace, 1); err != nil {
		return nil, nil, true, apierrors.NewForbidden(refusal.NoResource, "", err)
	}
	return w.RuleResolver.RulesFor(ctx, u, namespace)
}

// admit refuses to compare too many with those of a role, or of the role that a binding gives.
func (w *ruleWork) admit(a admission.Attributes) error {
	if err := w.admitWords(a); err != nil {
		return err
	}
	combinations := int64(0)
	switch o := a.GetObject().(type) {
	case *rbac.Role:
		combinations = counts.Combinations(o.Rules)
	case *rbac.ClusterRole:
		combinations = counts.Combinations(o.Rules)
	case *rbac.RoleBinding:
		combinations = w.combinationsOf(o.RoleRef, a.GetNamespace())
	case *rbac.ClusterRoleBinding:
		combinations = w.combinationsOf(o.RoleRef, "")
	}
	if combinations == 0 {
		return nil
	}
	if err := w.check(a.GetNamespace(), combinations); err != nil {
		return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), err)
	}
	return nil
}

func (w *ruleWork) combinationsOf(ref rbac.RoleRef, namespace string) int64 {
	return counts.Combinations(w.rulesOf(rbacv1.RoleRef{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}, namespace))
}

func (w *ruleWork) rulesOf(ref rbacv1.RoleRef, namespace string) []rbacv1.PolicyRule {
	if ref.Kind == "Role" {
		if role, err := w.roles.Roles(namespace).Get(ref.Name); err == nil {
			return role.Rules
		}
		return nil
	}
	if role, err := w.clusterRoles.Get(ref.Name); err == nil {
		return role.Rules
	}
	return nil
}

// check adds up the rules of all bindings that may count in a namespace.
func (w *ruleWork) check(namespace string, combinations int64) error {
	everywhere, err := w.clusterRoleBindings.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list bindings: %w", err)
	}
	rules := int64(0)
	for _, b := range everywhere {
		rules += int64(len(w.rulesOf(b.RoleRef, "")))
	}
	if namespace != "" {
		here, err := w.roleBindings.RoleBindings(namespace).List(labels.Everything())
		if err != nil {
			return fmt.Errorf("list bindings: %w", err)
		}
		for _, b := range here {
			rules += int64(len(w.rulesOf(b.RoleRef, namespace)))
		}
	}
	if err := bounds.BoundRules.Check(rules); err != nil {
		return err
	}
	return bounds.RuleSteps.Check(rules * combinations)
}
