// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/vcluster/inside"
)

// Authorizer decides before RBAC does. The role bindings of the state count in each namespace of tenants, whether the objects that
// show them exist or not: so rights neither come late in a new namespace, nor can they outlast the state while the space sleeps.
type Authorizer struct {
	source       *access.Source
	accounts     corelisters.ServiceAccountLister
	clusterRoles rbaclisters.ClusterRoleLister
	// afterRBAC, if set, decides on what RBAC doesn't allow.
	afterRBAC authorizer.Authorizer
	// groups, if set, returns the API groups of custom resources, for lists of what somebody may do.
	groups func() []string
}

// NewAuthorizer returns an authorizer for the state of source. It reads from the informers.
func NewAuthorizer(source *access.Source, f informers.SharedInformerFactory) *Authorizer {
	return &Authorizer{
		source: source, accounts: f.Core().V1().ServiceAccounts().Lister(), clusterRoles: f.Rbac().V1().ClusterRoles().Lister(),
	}
}

// WithRBAC returns what the authorizer, then RBAC, and then the webhook decide, and the resolver of the rules of both.
func (t *Authorizer) WithRBAC(f informers.SharedInformerFactory) (authorizer.Authorizer, authorizer.RuleResolver, error) {
	v1 := f.Rbac().V1()
	own := rbac.New(
		&rbac.RoleGetter{Lister: v1.Roles().Lister()}, unkeptBindings{v1.RoleBindings().Lister()},
		&rbac.ClusterRoleGetter{Lister: t.clusterRoles}, &rbac.ClusterRoleBindingLister{Lister: v1.ClusterRoleBindings().Lister()},
	)
	authorizers := []union.NamedAuthorizer{
		byGrants(t.source),
		{AuthorizerName: "berth.dev/tenant", Authorizer: authorizer.AuthorizerFunc(t.authorize)},
		{AuthorizerName: "kubernetes.io/system-privileged-group", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		{AuthorizerName: "rbac", Authorizer: own},
	}
	if t.afterRBAC != nil {
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: "webhook", Authorizer: t.afterRBAC})
	}
	all, err := union.New(authorizers...)
	if err != nil {
		return nil, nil, fmt.Errorf("combine authorizers: %w", err)
	}
	return all, &resolver{tenant: t, rbac: own}, nil
}

func (t *Authorizer) authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	rules := t.source.Rules()
	if !rules.Enforces() || a.GetUser() == nil {
		return authorizer.DecisionNoOpinion, "", nil
	}
	promoted := t.promoted(rules, a.GetUser())
	decision, reason := rules.Authorize(a, promoted, inside.Is(ctx))
	if decision != authorizer.DecisionNoOpinion || !access.IsTenants(a.GetNamespace()) {
		return decision, reason, nil
	}
	return t.bound(rules, a.GetUser(), promoted).Authorize(ctx, a)
}

// bound returns what the state's role bindings of a user allow in a namespace of tenants.
func (t *Authorizer) bound(rules *access.Rules, u user.Info, promoted bool) *rbac.RBACAuthorizer {
	return rbac.New(nil, stateBindings(rules.BindingsOf(u, promoted)), stateRoles{rules, t.clusterRoles}, stateBindings(nil))
}

// stateRoles are the ClusterRoles of the space, and the state's own, whatever is stored under its name.
type stateRoles struct {
	rules  *access.Rules
	lister rbaclisters.ClusterRoleLister
}

func (r stateRoles) GetClusterRole(_ context.Context, name string) (*rbacv1.ClusterRole, error) {
	if name == v1alpha1.NamespaceDeleterRole {
		return r.rules.NamespaceDeleter(), nil
	}
	return r.lister.Get(name)
}

// promoted reports whether a user is a ServiceAccount with the label that makes it an owner.
func (t *Authorizer) promoted(rules *access.Rules, u user.Info) bool {
	if !rules.Promotes() {
		return false
	}
	namespace, name, err := serviceaccount.SplitUsername(u.GetName())
	if err != nil {
		return false
	}
	account, err := t.accounts.ServiceAccounts(namespace).Get(name)
	return err == nil && account.Labels[v1alpha1.LabelPromote] == promote
}

// standing is what a user is in the space.
func (t *Authorizer) standing(u user.Info) access.Standing {
	rules := t.source.Rules()
	return rules.StandingOf(u, t.promoted(rules, u))
}

// promote is the value of the label that promotes a ServiceAccount.
const promote = "true"

// unkeptBindings are all but those that show what the state says.
type unkeptBindings struct{ lister rbaclisters.RoleBindingLister }

func (b unkeptBindings) ListRoleBindings(_ context.Context, namespace string) ([]*rbacv1.RoleBinding, error) {
	all, err := b.lister.RoleBindings(namespace).List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list role bindings: %w", err)
	}
	for i, binding := range all {
		if _, kept := binding.Labels[access.LabelRoleBinding]; kept {
			rest := append([]*rbacv1.RoleBinding(nil), all[:i]...)
			for _, binding := range all[i+1:] {
				if _, kept := binding.Labels[access.LabelRoleBinding]; !kept {
					rest = append(rest, binding)
				}
			}
			return rest, nil
		}
	}
	return all, nil
}

// stateBindings are the role bindings of the state.
type stateBindings []*rbacv1.RoleBinding

func (b stateBindings) ListRoleBindings(context.Context, string) ([]*rbacv1.RoleBinding, error) {
	return b, nil
}

func (b stateBindings) ListClusterRoleBindings(context.Context) ([]*rbacv1.ClusterRoleBinding, error) {
	return nil, nil
}
