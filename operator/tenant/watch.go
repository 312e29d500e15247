// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/owners"
)

// tenantEvents enqueues a tenant that changed, its heirs if its rights changed, and those that count it or depend on it in the tree.
func (r *reconciler) tenantEvents() handler.EventHandler {
	around := func(ctx context.Context, tenant client.Object, q queue) {
		one := tenant.(*v1alpha1.Tenant)
		add(q, one.Name, one.Spec.Parent)
		add(q, r.childNames(ctx, one.Name)...)
		add(q, r.sharing(ctx, one.Spec.Parent)...)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { around(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { around(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Tenant), e.ObjectNew.(*v1alpha1.Tenant)
			add(q, after.Name)
			if before.Spec.QuotaOvercommit != after.Spec.QuotaOvercommit {
				add(q, r.childNames(ctx, after.Name)...)
			}
			if !equality.Semantic.DeepEqual(before.Spec.Quota, after.Spec.Quota) {
				add(q, r.sharing(ctx, after.Spec.Parent)...)
			}
			if !equality.Semantic.DeepEqual(rightsOf(before), rightsOf(after)) {
				addFirst(q, append(r.tree.Heirs(after.Name), after.Name)...)
			}
			if !equality.Semantic.DeepEqual(poolOf(before), poolOf(after)) {
				add(q, r.tree.Descendants(after.Name)...)
			}
			if !equality.Semantic.DeepEqual(before.Status.Subtree, after.Status.Subtree) {
				add(q, after.Spec.Parent)
			}
		},
	}
}

// sharing returns the names of the tenants below one that refuses overcommitment: what one of them has, others can't have.
func (r *reconciler) sharing(ctx context.Context, parent string) []string {
	one := &v1alpha1.Tenant{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: parent}, one); err != nil || one.Spec.QuotaOvercommit != v1alpha1.OvercommitRefused {
		return nil
	}
	return r.childNames(ctx, parent)
}

// rightsOf are the fields of a tenant that its heirs inherit.
func rightsOf(t *v1alpha1.Tenant) []any {
	return []any{t.Spec.Owners, t.Spec.Permissions, t.Spec.AdditionalRoleBindings}
}

// poolOf are the fields of a tenant that bound the pools of those below it.
func poolOf(t *v1alpha1.Tenant) []any { return []any{t.Spec.Nodes, t.Spec.Priority} }

// spaceEvents enqueues the tenant of a space, the tenant of the space's name, which may wait for that name, and if the space's nodes
// change, those that have nodes of their own.
func (r *reconciler) spaceEvents() handler.EventHandler {
	around := func(ctx context.Context, o client.Object, q queue, moved bool) {
		space := o.(*v1alpha1.Space)
		add(q, space.Spec.TenantName, space.Name)
		if moved {
			add(q, r.preempting(ctx)...)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { around(ctx, e.Object, q, true) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { around(ctx, e.Object, q, true) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.Space), e.ObjectNew.(*v1alpha1.Space)
			around(ctx, before, q, false)
			around(ctx, after, q, !equality.Semantic.DeepEqual(before.Spec.Nodes, after.Spec.Nodes) || before.Spec.TenantName != after.Spec.TenantName)
		},
	}
}

// preempting returns the names of the tenants whose own nodes a space may share.
func (r *reconciler) preempting(ctx context.Context) (names []string) {
	list := &v1alpha1.TenantList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache of a manager that ends
	}
	for i := range list.Items {
		if list.Items[i].Spec.Priority.Preemption == v1alpha1.PreemptionOwnNodes {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// ledgerEvents has the tenants below reconciled when the quota of a tenant changes, which theirs can't be more than.
func (r *reconciler) ledgerEvents() handler.EventHandler {
	around := func(ctx context.Context, o client.Object, q queue) {
		add(q, o.GetName())
		add(q, r.childNames(ctx, o.GetName())...)
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { around(ctx, e.Object, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { around(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
				around(ctx, e.ObjectNew, q)
			}
		},
	}
}

// ownerEvents enqueues the tenants that select a TenantOwner, and their heirs.
func (r *reconciler) ownerEvents() handler.EventHandler {
	return rightsEvents(func(ctx context.Context, o client.Object) (all []string) {
		list := &v1alpha1.TenantList{}
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache of a manager that ends
		}
		for i := range list.Items {
			if name := list.Items[i].Name; owners.Selects(&list.Items[i], labels.Set(o.GetLabels())) {
				all = append(append(all, name), r.tree.Heirs(name)...)
			}
		}
		return all
	})
}

// configurationEvents enqueues all tenants.
func (r *reconciler) configurationEvents() handler.EventHandler {
	return rightsEvents(func(ctx context.Context, _ client.Object) (all []string) {
		list := &v1alpha1.TenantList{}
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the cache of a manager that ends
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Name)
		}
		return all
	})
}

// rightsEvents enqueues the tenants that may get or lose rights by an object.
func rightsEvents(names func(context.Context, client.Object) []string) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { addFirst(q, names(ctx, e.Object)...) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { addFirst(q, names(ctx, e.Object)...) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			addFirst(q, names(ctx, e.ObjectOld)...)
			addFirst(q, names(ctx, e.ObjectNew)...)
		},
	}
}

// childNames returns the names of the tenants directly below one.
func (r *reconciler) childNames(ctx context.Context, name string) (names []string) {
	list := &v1alpha1.TenantList{}
	if err := r.client.List(ctx, list, client.MatchingFields{parentField: name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache of a manager that ends
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
