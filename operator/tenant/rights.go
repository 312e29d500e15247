// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/owners"
)

// findRights finds the owners and role bindings of the tenant, with those that it inherits (O2, H3). Selectors that are invalid
// select nobody, and are reported.
func (one *run) findRights(ctx context.Context) error {
	all := &v1alpha1.TenantOwnerList{}
	if err := one.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list owners: %w", err)
	}
	var bequeathers []*v1alpha1.Tenant
	for _, name := range one.tree.Bequeathers(one.tenant.Name) {
		above := &v1alpha1.Tenant{}
		if err := one.client.Get(ctx, client.ObjectKey{Name: name}, above); err != nil {
			return fmt.Errorf("read tenant %s: %w", name, err)
		}
		bequeathers = append(bequeathers, above)
	}
	rights, err := owners.Of(one.tenant, bequeathers, all.Items)
	one.rights = &rights
	if err != nil {
		one.flag(&problem{reason: v1alpha1.ReasonInvalidSpec, message: err.Error(), state: v1alpha1.TenantInvalid})
	}
	return nil
}
