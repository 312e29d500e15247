// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package systemroles watches the SystemRole objects of the host (Z6), and says what they grant in each space. The platform calls it. It
// never talks to a space.
package systemroles

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// Roles are the SystemRoles of the host, as far as they were read. It is safe for concurrent use.
type Roles struct {
	changed func()

	mu    sync.Mutex
	roles map[string]role
}

// role is a SystemRole, and what it grants where it holds.
type role struct {
	spec   *v1alpha1.SystemRoleSpec
	grants *access.Set
}

func roleOf(r *v1alpha1.SystemRole) role {
	return role{&r.Spec, access.NewSet([]access.Grant{grantOf(r)})}
}

var _ cache.ReflectorStore = &Roles{}

// New returns roles of which nothing was read. Changed is called after each change.
func New(changed func()) *Roles {
	return &Roles{changed: changed, roles: map[string]role{}}
}

// Run watches the objects until ctx ends. The client's scheme must have the API of Berth.
func (r *Roles) Run(ctx context.Context, host client.WithWatch) {
	reflector := cache.NewReflectorWithOptions(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.SystemRoleList{}
			return list, host.List(ctx, list, &client.ListOptions{Raw: &o})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return host.Watch(ctx, &v1alpha1.SystemRoleList{}, &client.ListOptions{Raw: &o})
		},
	}, &v1alpha1.SystemRole{}, r, cache.ReflectorOptions{Name: "system roles"})
	reflector.RunWithContext(ctx)
}

// Granted returns what the roles give in a space of a tenant, which is "" if it has none. Spaces share the sets.
func (r *Roles) Granted(space, tenant string) (grants []*access.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.roles)) {
		if role := r.roles[name]; holds(role.spec, space, tenant) {
			grants = append(grants, role.grants)
		}
	}
	return grants
}

func holds(spec *v1alpha1.SystemRoleSpec, space, tenant string) bool {
	system := space == v1alpha1.SystemTenant
	switch spec.ScopeType {
	case v1alpha1.ScopeCluster:
		return true
	case v1alpha1.ScopeSystem:
		return system
	case v1alpha1.ScopeTenants:
		return !system && tenant != "" && slices.Contains(spec.Tenants, tenant)
	}
	return false
}

func grantOf(role *v1alpha1.SystemRole) access.Grant {
	subject := access.GrantSubject{Tenant: v1alpha1.SystemTenant}
	for _, s := range role.Spec.Subjects {
		switch s.Kind {
		case v1alpha1.SystemUserKind:
			subject.Users = append(subject.Users, s.Name)
		case v1alpha1.SystemGroupKind:
			subject.Groups = append(subject.Groups, s.Name)
		}
	}
	grant := access.Grant{Source: "SystemRole " + role.Name}
	if len(subject.Users)+len(subject.Groups) > 0 { // one without names is of everybody
		grant.Subjects = []access.GrantSubject{subject}
	}
	for _, rule := range role.Spec.Rules {
		grant.Rules = append(grant.Rules, access.GrantRule{
			Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames, Paths: rule.NonResourceURLs,
		})
	}
	return grant
}

// Add implements [cache.ReflectorStore].
func (r *Roles) Add(item any) error { return r.Update(item) }

// Update implements [cache.ReflectorStore].
func (r *Roles) Update(item any) error {
	stored, ok := item.(*v1alpha1.SystemRole)
	if !ok {
		return fmt.Errorf("store SystemRole: unexpected type %T", item)
	}
	changed := roleOf(stored)
	r.set(func() { r.roles[stored.Name] = changed })
	return nil
}

// Delete implements [cache.ReflectorStore].
func (r *Roles) Delete(item any) error {
	role, ok := item.(*v1alpha1.SystemRole)
	if !ok {
		return fmt.Errorf("remove SystemRole: unexpected type %T", item)
	}
	r.set(func() { delete(r.roles, role.Name) })
	return nil
}

// Replace implements [cache.ReflectorStore].
func (r *Roles) Replace(items []any, _ string) error {
	all := map[string]role{}
	for _, item := range items {
		if stored, ok := item.(*v1alpha1.SystemRole); ok {
			all[stored.Name] = roleOf(stored)
		}
	}
	r.set(func() { r.roles = all })
	return nil
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (*Roles) Resync() error { return nil }

func (r *Roles) set(change func()) {
	r.mu.Lock()
	change()
	r.mu.Unlock()
	r.changed()
}
