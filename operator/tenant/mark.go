// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1alpha1ac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// protect adds the finalizer, before anything is made for the tenant.
func (one *run) protect(ctx context.Context) error {
	if controllerutil.ContainsFinalizer(one.tenant, v1alpha1.TenantFinalizer) || !one.tenant.DeletionTimestamp.IsZero() {
		return nil
	}
	changed := one.tenant.DeepCopy()
	controllerutil.AddFinalizer(changed, v1alpha1.TenantFinalizer)
	return one.patch(ctx, changed, one.tenant)
}

// patch writes what differs between an object and what it was, if it has not changed in the meantime.
func (one *run) patch(ctx context.Context, changed, was client.Object) error {
	base := was.DeepCopyObject().(client.Object)
	if err := one.client.Patch(ctx, changed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}), fieldOwner); err != nil {
		return fmt.Errorf("change %s: %w", was.GetName(), err)
	}
	was.SetResourceVersion(changed.GetResourceVersion())
	was.SetFinalizers(changed.GetFinalizers())
	was.SetLabels(changed.GetLabels())
	return nil
}

// treeLabels returns the labels of a tenant and of its spaces that say which tenants are above it (H2).
func (one *run) treeLabels() map[string]string {
	labels := map[string]string{}
	for i, ancestor := range one.tree.Ancestors(one.tenant.Name) {
		labels[v1alpha1.LabelTreePrefix+ancestor] = strconv.Itoa(i + 1)
	}
	return labels
}

// mark sets the tree labels of the tenant.
func (one *run) mark(ctx context.Context) error {
	labels := one.treeLabels()
	if !containsAll(one.tenant.Labels, labels) {
		apply := v1alpha1ac.Tenant(one.tenant.Name).WithUID(one.tenant.UID).WithResourceVersion(one.tenant.ResourceVersion).WithLabels(labels)
		if err := one.client.Apply(ctx, apply, fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("label tenant %s: %w", one.tenant.Name, err)
		}
		one.tenant.ResourceVersion = *apply.ResourceVersion
		one.tenant.Labels = apply.Labels
	}
	return one.unmark(ctx, one.tenant, labels)
}

// unmark removes tree labels that are not true, whoever set them.
func (one *run) unmark(ctx context.Context, object client.Object, labels map[string]string) error {
	changed := object.DeepCopyObject().(client.Object)
	left := maps.Clone(changed.GetLabels())
	maps.DeleteFunc(left, func(key, value string) bool {
		return strings.HasPrefix(key, v1alpha1.LabelTreePrefix) && labels[key] != value
	})
	if len(left) == len(changed.GetLabels()) {
		return nil
	}
	changed.SetLabels(left)
	return one.patch(ctx, changed, object)
}

func containsAll(have, want map[string]string) bool {
	return !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(key string) bool { return have[key] != want[key] })
}
