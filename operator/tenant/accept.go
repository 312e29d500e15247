// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/tree"
)

// defaultTreeDepth is that of the definition of BerthConfiguration.
const defaultTreeDepth = 8

// accept puts the tenant where its spec says, if the tree allows it (H1, H4). A change that the tree refuses leaves the tenant in
// the tree as it was.
func (one *run) accept(ctx context.Context) error {
	one.mu.Lock()
	refused, err := one.enter(ctx, one.tenant, int(ptr.Deref(one.config.Spec.MaxTreeDepth, defaultTreeDepth)), map[string]bool{})
	one.mu.Unlock()
	if err != nil {
		return err
	}
	if refused != nil {
		// The other steps follow: whoever is an owner no longer must not keep the rights until the parent is right.
		one.flag(&problem{reason: v1alpha1.ReasonInvalidParent, message: refused.Error(), state: v1alpha1.TenantInvalid})
	}
	return nil
}

// enter puts a tenant in the tree, after those above it that are not there yet: they may come in any order. It returns why the tree
// refuses it.
func (r *reconciler) enter(ctx context.Context, tenant *v1alpha1.Tenant, depth int, seen map[string]bool) (refused, err error) {
	seen[tenant.Name] = true
	if parent := tenant.Spec.Parent; parent != "" && !seen[parent] {
		if _, known := r.tree.Get(parent); !known {
			above := &v1alpha1.Tenant{}
			switch err := r.client.Get(ctx, client.ObjectKey{Name: parent}, above); {
			case err == nil:
				refusedAbove, err := r.enter(ctx, above, depth, seen)
				if err != nil {
					return nil, err
				}
				if _, known := r.tree.Get(parent); !known && refusedAbove != nil {
					return r.refuseBelow(ctx, tenant)
				}
			case !apierrors.IsNotFound(err):
				return nil, fmt.Errorf("read tenant %s: %w", parent, err)
			}
		}
	}
	want := place(tenant)
	if err := r.tree.Check(tenant.Name, want, depth); err != nil {
		return err, nil
	}
	if have, known := r.tree.Get(tenant.Name); !known || have != want {
		r.tree.Set(tenant.Name, want)
		r.enqueue(r.tree.Descendants(tenant.Name)...) // their rights, and their labels
		r.enqueue(r.childNames(ctx, tenant.Name)...)  // they may have waited for this one
	}
	return nil, nil
}

// refuseBelow returns why a tenant can't be below one that exists and has no place in the tree.
func (r *reconciler) refuseBelow(ctx context.Context, tenant *v1alpha1.Tenant) (refused, err error) {
	above, err := r.namedAbove(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if above[tenant.Name] {
		return fmt.Errorf("spec.parent: %q is below the tenant %q; delete one of the two, and create it with another parent", tenant.Spec.Parent, tenant.Name), nil
	}
	return fmt.Errorf("spec.parent: the tree refuses the tenant %q; follow the condition Ready of that tenant", tenant.Spec.Parent), nil
}

// namedAbove returns the tenants above one as their specs name them, whether the tree accepts them or not. The tenant itself is one of
// them if they form a cycle.
func (r *reconciler) namedAbove(ctx context.Context, tenant *v1alpha1.Tenant) (map[string]bool, error) {
	names := map[string]bool{}
	for name := tenant.Spec.Parent; name != "" && !names[name]; {
		names[name] = true
		above := &v1alpha1.Tenant{}
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, above); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read tenant %s: %w", name, err)
		}
		name = above.Spec.Parent
	}
	return names, nil
}

// forget removes a tenant that is gone. The tree may have refused a change of its parent because of it: the parent is reconciled after it
// has left the tree, and not only after the event of its deletion.
func (r *reconciler) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.tree.Get(name)
	if !known {
		return
	}
	r.tree.Remove(name)
	if was.Parent != "" {
		r.enqueue(was.Parent)
	}
}

// load fills the tree with the tenants that were in it before the process started. The labels of a tenant tell that it was.
func (r *reconciler) load(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loaded {
		return nil
	}
	list := &v1alpha1.TenantList{}
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("list tenants: %w", err)
	}
	var refused []*v1alpha1.Tenant
	for i := range list.Items {
		tenant := &list.Items[i]
		if tenant.Spec.Parent != "" && tenant.Labels[v1alpha1.LabelTreePrefix+tenant.Spec.Parent] != "1" {
			continue
		}
		r.tree.Set(tenant.Name, place(tenant))
		if ready := readyCondition(tenant); ready != nil && ready.Reason == v1alpha1.ReasonInvalidParent {
			refused = append(refused, tenant)
		}
	}
	for _, tenant := range refused { // a change of private may have been refused
		was := place(tenant)
		was.Private = !was.Private
		if r.tree.Check(tenant.Name, place(tenant), len(list.Items)) != nil && r.tree.Check(tenant.Name, was, len(list.Items)) == nil {
			r.tree.Set(tenant.Name, was)
		}
	}
	r.loaded = true
	return nil
}

func place(tenant *v1alpha1.Tenant) tree.Tenant {
	return tree.Tenant{Parent: tenant.Spec.Parent, Private: ptr.Deref(tenant.Spec.Private, false)}
}
