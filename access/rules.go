// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package access

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Rules are what a [State] says, prepared for decisions on each request. They are immutable.
type Rules struct {
	state    *State
	owners   []ownerBinding
	others   []*rbacv1.RoleBinding
	promoted []*rbacv1.RoleBinding // without subjects
	enforces bool
}

// NewRules returns the rules of a state.
func NewRules(s *State) *Rules {
	r := &Rules{state: s}
	r.bind()
	a, n := &s.Access, &s.Namespaces
	r.enforces = s.Tenant != "" || len(a.Owners) > 0 || len(a.Administrators) > 0 || len(a.AdditionalRoleBindings) > 0 || r.Promotes() || r.Cordoned() ||
		n.Quota != nil || len(n.Labels) > 0 || len(n.Annotations) > 0 || len(n.LimitRanges) > 0 || len(n.NetworkPolicies) > 0 || len(s.Published) > 0 || s.PublishedUnknown
	return r
}

// State returns the state that the rules are made of.
func (r *Rules) State() *State { return r.state }

// Enforces reports whether there is anything to enforce.
func (r *Rules) Enforces() bool { return r.enforces }

// BindingsOf returns the role bindings that a user has by the state in each namespace of the space, whether the objects that show
// them exist or not. Those of owners are only for who counts as one.
func (r *Rules) BindingsOf(u user.Info, promoted bool) []*rbacv1.RoleBinding {
	who := subjectOf(u)
	var bindings []*rbacv1.RoleBinding
	if who.in(r.state.Access.OwnerScope) {
		for _, b := range r.owners {
			if who.is(b.owner.Kind, b.owner.Name) {
				bindings = append(bindings, b.binding)
			}
		}
	}
	if namespace, account, ok := serviceAccount(who.name); ok && promoted && r.Promotes() {
		for _, b := range r.promoted {
			binding := *b
			binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}}
			bindings = append(bindings, &binding)
		}
	}
	return append(bindings, r.others...)
}
