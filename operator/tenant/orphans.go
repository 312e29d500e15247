// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// reportOrphans warns of spaces that name a tenant that doesn't exist: nobody sets their owners.
func (r *reconciler) reportOrphans(ctx context.Context, tenant string) error {
	orphans, err := spaces(ctx, r.client, tenant)
	if err != nil {
		return err
	}
	for i := range orphans {
		if space := &orphans[i]; space.DeletionTimestamp.IsZero() {
			r.events.Eventf(space, nil, corev1.EventTypeWarning, "TenantNotFound", "FindTenant",
				"spec.tenantName: there is no tenant %s, so that the space keeps the owners that it has; create the tenant, or restore a snapshot of the space as another one", tenant)
		}
	}
	return nil
}
