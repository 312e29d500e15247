// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/pkg/apis/rbac"
	rbacconversion "k8s.io/kubernetes/pkg/apis/rbac/v1"

	"github.com/berth-dev/berth/bounds"
)

// admitWords refuses a role or a binding that makes each request of the space too expensive: to authorize one, an API server compares
// it with the rules of all bindings, and its user with their subjects.
func (w *ruleWork) admitWords(a admission.Attributes) error {
	var change ruleChange
	switch o := a.GetObject().(type) {
	case *rbac.Role:
		change = ruleChange{kind: "Role", namespace: a.GetNamespace(), name: o.Name, rules: rulesOf(o.Rules)}
	case *rbac.ClusterRole:
		change = ruleChange{kind: "ClusterRole", name: o.Name, rules: rulesOf(o.Rules)}
	case *rbac.RoleBinding:
		change = ruleChange{kind: "RoleBinding", namespace: a.GetNamespace(), name: o.Name, role: o.RoleRef, subjects: len(o.Subjects)}
	case *rbac.ClusterRoleBinding:
		change = ruleChange{kind: "ClusterRoleBinding", name: o.Name, role: o.RoleRef, subjects: len(o.Subjects)}
	default:
		return nil
	}
	after, err := w.words(change)
	if err != nil {
		return err
	}
	exceeded := bounds.BoundWords.Check(after)
	if exceeded == nil {
		return nil
	}
	before, err := w.words(ruleChange{})
	if err != nil || after <= before { // it was there before, under older rules
		return err
	}
	return apierrors.NewForbidden(a.GetResource().GroupResource(), a.GetName(), exceeded)
}

// ruleChange is a role or a binding in the place of the one that is stored.
type ruleChange struct {
	kind, namespace, name string
	rules                 []rbacv1.PolicyRule
	role                  rbac.RoleRef
	subjects              int
}

// words are what a request may be compared with: of all ClusterRoleBindings, and of the RoleBindings of the namespace that has most.
func (w *ruleWork) words(change ruleChange) (int64, error) {
	type role struct{ kind, namespace, name string }
	known := map[role]int64{}
	wordsOf := func(kind, namespace, name string, subjects int) int64 {
		if kind == "ClusterRole" {
			namespace = ""
		}
		r := role{kind, namespace, name}
		n, ok := known[r]
		if !ok {
			rules := change.rules
			if r != (role{change.kind, change.namespace, change.name}) {
				rules = w.rulesOf(rbacv1.RoleRef{Kind: kind, Name: name}, namespace)
			}
			for i := range rules {
				n += int64(len(rules[i].Verbs) + len(rules[i].APIGroups) + len(rules[i].Resources) + len(rules[i].ResourceNames) + len(rules[i].NonResourceURLs))
			}
			known[r] = n
		}
		return n + int64(subjects)
	}
	clusterBindings, err := w.clusterRoleBindings.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list bindings: %w", err)
	}
	everywhere := int64(0)
	for _, b := range clusterBindings {
		if change.kind != "ClusterRoleBinding" || b.Name != change.name {
			everywhere += wordsOf(b.RoleRef.Kind, "", b.RoleRef.Name, len(b.Subjects))
		}
	}
	bindings, err := w.roleBindings.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list bindings: %w", err)
	}
	in := map[string]int64{}
	for _, b := range bindings {
		if change.kind != "RoleBinding" || b.Name != change.name || b.Namespace != change.namespace {
			in[b.Namespace] += wordsOf(b.RoleRef.Kind, b.Namespace, b.RoleRef.Name, len(b.Subjects))
		}
	}
	switch change.kind {
	case "ClusterRoleBinding":
		everywhere += wordsOf(change.role.Kind, "", change.role.Name, change.subjects)
	case "RoleBinding":
		in[change.namespace] += wordsOf(change.role.Kind, change.namespace, change.role.Name, change.subjects)
	}
	most := int64(0)
	for _, n := range in {
		most = max(most, n)
	}
	return everywhere + most, nil
}

// rulesOf converts rules, of which nothing is changed.
func rulesOf(internal []rbac.PolicyRule) []rbacv1.PolicyRule {
	rules := make([]rbacv1.PolicyRule, len(internal))
	for i := range internal {
		_ = rbacconversion.Convert_rbac_PolicyRule_To_v1_PolicyRule(&internal[i], &rules[i], nil) // it has the same fields
	}
	return rules
}
