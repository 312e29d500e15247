// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// rbacWrites returns what is to be done so that RBAC's default objects exist
// and grant what they should. What is there is read with one list a kind:
// reading each of some 150 objects would double the time of a start.
func rbacWrites(ctx context.Context, client kubernetes.Interface) ([]func() error, error) {
	rbac, namespaces := client.RbacV1(), client.CoreV1().Namespaces()
	var writes []func() error

	clusterRoles, err := rbac.ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster roles: %w", err)
	}
	known := byName(clusterRoles.Items)
	for _, role := range append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...) {
		first := &firstRole{RuleOwnerModifier: reconciliation.ClusterRoleModifier{Client: rbac.ClusterRoles()}}
		if old := known[role.Name]; old != nil {
			first.existing = reconciliation.ClusterRoleRuleOwner{ClusterRole: old}
		}
		writes = append(writes, ensureRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: &role}, first))
	}

	clusterBindings, err := rbac.ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list cluster role bindings: %w", err)
	}
	knownBindings := byName(clusterBindings.Items)
	for _, binding := range append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...) {
		first := &firstBinding{RoleBindingModifier: reconciliation.ClusterRoleBindingClientAdapter{Client: rbac.ClusterRoleBindings()}}
		if old := knownBindings[binding.Name]; old != nil {
			first.existing = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: old}
		}
		writes = append(writes, ensureBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &binding}, first))
	}

	// These are few.
	for _, roles := range bootstrappolicy.NamespaceRoles() {
		for _, role := range roles {
			modifier := reconciliation.RoleModifier{Client: rbac, NamespaceClient: namespaces}
			writes = append(writes, ensureRole(reconciliation.RoleRuleOwner{Role: &role}, modifier))
		}
	}
	for _, bindings := range bootstrappolicy.NamespaceRoleBindings() {
		for _, binding := range bindings {
			modifier := reconciliation.RoleBindingClientAdapter{Client: rbac, NamespaceClient: namespaces}
			writes = append(writes, ensureBinding(reconciliation.RoleBindingAdapter{RoleBinding: &binding}, modifier))
		}
	}
	return writes, nil
}

func ensureRole(role reconciliation.RuleOwner, client reconciliation.RuleOwnerModifier) func() error {
	return func() error {
		_, err := (&reconciliation.ReconcileRoleOptions{Role: role, Client: client, Confirm: true}).Run()
		if err != nil {
			return fmt.Errorf("ensure role %s: %w", role.GetName(), err)
		}
		return nil
	}
}

func ensureBinding(binding reconciliation.RoleBinding, client reconciliation.RoleBindingModifier) func() error {
	return func() error {
		_, err := (&reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: client, Confirm: true}).Run()
		if err != nil {
			return fmt.Errorf("ensure role binding %s: %w", binding.GetName(), err)
		}
		return nil
	}
}

// firstRole answers the first Get from what was listed, and later ones, which
// follow a conflict, from the server.
type firstRole struct {
	reconciliation.RuleOwnerModifier
	existing reconciliation.RuleOwner // nil if there is none
	asked    bool
}

func (f *firstRole) Get(namespace, name string) (reconciliation.RuleOwner, error) {
	switch {
	case f.asked:
		return f.RuleOwnerModifier.Get(namespace, name)
	case f.existing == nil:
		f.asked = true
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterroles"), name)
	default:
		f.asked = true
		return f.existing, nil
	}
}

// firstBinding is firstRole for bindings.
type firstBinding struct {
	reconciliation.RoleBindingModifier
	existing reconciliation.RoleBinding
	asked    bool
}

func (f *firstBinding) Get(namespace, name string) (reconciliation.RoleBinding, error) {
	switch {
	case f.asked:
		return f.RoleBindingModifier.Get(namespace, name)
	case f.existing == nil:
		f.asked = true
		return nil, apierrors.NewNotFound(rbacv1.Resource("clusterrolebindings"), name)
	default:
		f.asked = true
		return f.existing, nil
	}
}

func byName[T any, P interface {
	*T
	GetName() string
}](items []T) map[string]*T {
	m := make(map[string]*T, len(items))
	for i := range items {
		m[P(&items[i]).GetName()] = &items[i]
	}
	return m
}
