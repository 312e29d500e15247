// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// leftByOthers returns what a tenant can have of the quota of its parent: all of it, or if the parent refuses overcommitment, what the other
// tenants below the parent leave. It reports what the Tenant says beyond that.
func (one *run) leftByOthers(ctx context.Context, of quantities) (quantities, error) {
	parent := &v1alpha1.Tenant{}
	if err := one.client.Get(ctx, client.ObjectKey{Name: one.tenant.Spec.Parent}, parent); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read tenant %s: %w", one.tenant.Spec.Parent, err)
	}
	if parent.Spec.QuotaOvercommit != v1alpha1.OvercommitRefused { // also if it is gone
		return of, nil
	}
	siblings, err := one.childrenOf(ctx, one.client, parent)
	if err != nil {
		return nil, err
	}
	left := divide(of, parent.Spec.Quota, siblings, one.config)[one.tenant.Name]
	var beyond []string
	for _, name := range slices.Sorted(maps.Keys(one.tenant.Spec.Quota)) {
		wants, has, all := one.tenant.Spec.Quota[name], left[name], of[name]
		if _, limited := of[name]; limited && wants.Cmp(all) <= 0 && wants.Cmp(has) > 0 { // one above the parent's is reported already
			beyond = append(beyond, fmt.Sprintf("spec.quota[%s]: %s is more than the %s that older tenants leave of the %s of the tenant %s above, which refuses overcommitment",
				name, wants.String(), has.String(), all.String(), parent.Name))
		}
	}
	one.refuse(beyond, remedyBeyond)
	return left, nil
}

// divide divides a quota among tenants. Of the named resources, which are those in the spec of the tenant above, they have no more together
// than the quota. Of the others, each may have all, because every space needs some of them. What the specs of the tenants name comes first.
// Then come the defaults of those that don't name a resource. Each time, older tenants come before newer ones.
func divide(of, named quantities, among []v1alpha1.Tenant, config *v1alpha1.BerthConfiguration) map[string]quantities {
	slices.SortFunc(among, func(a, b v1alpha1.Tenant) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	parts := map[string]quantities{}
	for i := range among {
		parts[among[i].Name] = maps.Clone(of)
	}
	defaults := defaultQuota(config)
	for name := range named {
		all, limited := of[name]
		if !limited {
			continue
		}
		rest := all.DeepCopy()
		give := func(own bool) {
			for i := range among {
				amount, limited := among[i].Spec.Quota[name]
				if limited != own {
					continue
				}
				if !own {
					amount, limited = defaults[name]
				}
				if !limited || amount.Cmp(rest) > 0 {
					amount = rest
				}
				if amount.Sign() < 0 {
					amount = resource.Quantity{}
				}
				parts[among[i].Name][name] = amount.DeepCopy()
				rest.Sub(amount)
			}
		}
		give(true)
		give(false)
	}
	return parts
}
