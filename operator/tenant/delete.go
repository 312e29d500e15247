// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// mostNamed is how many objects a message names.
const mostNamed = 5

// deleteChildren deletes the tenants below a deleted one if that was asked for, and waits until they are gone (H7). They delete
// those below them in turn, all branches at once.
func (one *run) deleteChildren(ctx context.Context) (err error) {
	if len(one.children) == 0 { // according to the cache
		if one.children, err = one.childrenOf(ctx, one.live, one.tenant); err != nil {
			return err
		}
	}
	if len(one.children) == 0 {
		return nil
	}
	names := nameList(one.children, func(t *v1alpha1.Tenant) string { return t.Name })
	if one.tenant.Spec.DeletionPropagation != v1alpha1.DeleteSubtree {
		return one.failDeletion(v1alpha1.ReasonHasChildren, "there are tenants below this one: %s; delete them first, or delete them along with it: "+
			"kubectl patch tenant %s --type merge -p '{\"spec\":{\"deletionPropagation\":\"Subtree\"}}'", names, one.tenant.Name)
	}
	for i := range one.children {
		if err := one.deleteChild(ctx, &one.children[i]); err != nil {
			one.problem = &problem{reason: v1alpha1.ReasonHasChildren, state: v1alpha1.TenantDeleting, message: err.Error()}
			return err
		}
	}
	return one.failDeletion(v1alpha1.ReasonDeleting, "the tenants below are being deleted: %s", names)
}

func (one *run) deleteChild(ctx context.Context, child *v1alpha1.Tenant) error {
	if child.Spec.DeletionPropagation != v1alpha1.DeleteSubtree {
		changed := child.DeepCopy()
		changed.Spec.DeletionPropagation = v1alpha1.DeleteSubtree
		if err := one.patch(ctx, changed, child); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	if !child.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := one.client.Delete(ctx, child, client.Preconditions{UID: &child.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the tenant %s below: %w", child.Name, err)
	}
	return nil
}

// deleteSpaces deletes the tenant's spaces, and waits until they are gone (T6).
func (one *run) deleteSpaces(ctx context.Context) (err error) {
	if len(one.spaces) == 0 { // according to the cache
		if one.spaces, err = spaces(ctx, one.live, one.tenant.Name); err != nil {
			return err
		}
	}
	if len(one.spaces) == 0 {
		return nil
	}
	for i := range one.spaces {
		if err := one.deleteSpace(ctx, &one.spaces[i]); err != nil {
			return err
		}
	}
	return one.failDeletion(v1alpha1.ReasonDeleting, "the spaces are being deleted: %s", nameList(one.spaces, func(s *v1alpha1.Space) string { return s.Name }))
}

func (one *run) deleteSpace(ctx context.Context, space *v1alpha1.Space) error {
	if !space.DeletionTimestamp.IsZero() {
		return nil
	}
	// What becomes of the store has to be known before the platform deletes it.
	if policy := one.tenant.Spec.Space.DeletionPolicy; policy != "" && space.Name == one.tenant.Name && space.Spec.DeletionPolicy != policy {
		changed := space.DeepCopy()
		changed.Spec.DeletionPolicy = policy
		if err := one.patch(ctx, changed, space); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if err := one.client.Delete(ctx, space, client.Preconditions{UID: &space.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete space %s: %w", space.Name, err)
	}
	one.events.Eventf(one.tenant, space, corev1.EventTypeNormal, "SpaceDeleted", "DeleteSpace", "deleted the space %s", space.Name)
	return nil
}

// release removes the finalizer from a tenant of which nothing is left.
func (one *run) release(ctx context.Context) error {
	one.released = true
	changed := one.tenant.DeepCopy()
	if !controllerutil.RemoveFinalizer(changed, v1alpha1.TenantFinalizer) {
		return nil
	}
	return client.IgnoreNotFound(one.patch(ctx, changed, one.tenant))
}

func (one *run) failDeletion(reason, format string, args ...any) error {
	one.problem = &problem{reason: reason, message: fmt.Sprintf(format, args...), state: v1alpha1.TenantDeleting}
	return errStop
}

// nameList returns the first names of objects, for a message.
func nameList[T any](items []T, name func(*T) string) string {
	var names []string
	for i := range items {
		if i == mostNamed {
			names = append(names, fmt.Sprintf("and %d more", len(items)-i))
			break
		}
		names = append(names, name(&items[i]))
	}
	return strings.Join(names, ", ")
}
