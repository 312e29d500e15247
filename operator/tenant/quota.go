// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilquota "k8s.io/apiserver/pkg/quota/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/quota"
)

// limit writes the quota of the tenant into its ledger, which holds all spaces of the tenant, and of the tenants below, to it. The quota of
// a tenant is never more than its parent's (Q1, Q5).
func (one *run) limit(ctx context.Context) error {
	if one.tenant.Name == v1alpha1.SystemTenant { // its space is the host's own API
		return nil
	}
	want := v1alpha1.QuotaLedgerSpec{Limit: one.ownQuota()}
	if one.hasParent() {
		above := &v1alpha1.QuotaLedger{}
		if err := one.client.Get(ctx, client.ObjectKey{Name: one.tenant.Spec.Parent}, above); err != nil {
			return client.IgnoreNotFound(err) // the ledger of the parent comes first, and its event has this tenant reconciled
		}
		want.Parent = above.Name
		one.refuseBeyond(above)
		left, err := one.leftByOthers(ctx, above.Spec.Limit)
		if err != nil {
			return err
		}
		want.Limit = quota.Lowest(want.Limit, quota.Lowest(left, above.Spec.Limit))
	}
	one.quota = want.Limit
	have := &v1alpha1.QuotaLedger{}
	err := one.client.Get(ctx, client.ObjectKey{Name: one.tenant.Name}, have)
	switch {
	case apierrors.IsNotFound(err):
		ledger := &v1alpha1.QuotaLedger{ObjectMeta: metav1.ObjectMeta{Name: one.tenant.Name}, Spec: want}
		if err := one.client.Create(ctx, ledger, fieldOwner); err != nil {
			return fmt.Errorf("create the quota ledger: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("read the quota ledger: %w", err)
	case have.Spec.Parent == want.Parent && utilquota.Equals(have.Spec.Limit, want.Limit):
		return nil
	}
	changed := have.DeepCopy()
	changed.Spec = want
	if err := one.client.Patch(ctx, changed, client.MergeFrom(have), fieldOwner); err != nil {
		return fmt.Errorf("change the quota ledger: %w", err)
	}
	return nil
}

func (one *run) hasParent() bool {
	parent := one.tenant.Spec.Parent
	return parent != "" && parent != v1alpha1.SystemTenant
}

// ownQuota is what the Tenant says, and the defaults where it says nothing.
func (one *run) ownQuota() quantities {
	own := defaultQuota(one.config)
	var negative []string
	for _, name := range slices.Sorted(maps.Keys(one.tenant.Spec.Quota)) {
		amount := one.tenant.Spec.Quota[name]
		if amount.Sign() < 0 {
			negative = append(negative, fmt.Sprintf("spec.quota[%s]: %s is negative", name, amount.String()))
			amount = resource.Quantity{}
		}
		own[name] = amount
	}
	one.refuse(negative, "set 0 for none of it. Until then, it counts as 0")
	return own
}

// defaultQuota is the quota of a tenant that says nothing.
func defaultQuota(config *v1alpha1.BerthConfiguration) quantities {
	all := v1alpha1.DefaultQuota()
	maps.Copy(all, config.Spec.TenantDefaults.Quota)
	return all
}

// refuseBeyond reports what the Tenant says beyond the quota of its parent.
func (one *run) refuseBeyond(above *v1alpha1.QuotaLedger) {
	var beyond []string
	for _, name := range slices.Sorted(maps.Keys(one.tenant.Spec.Quota)) {
		amount := one.tenant.Spec.Quota[name]
		if most, limited := above.Spec.Limit[name]; limited && amount.Cmp(most) > 0 {
			beyond = append(beyond, fmt.Sprintf("spec.quota[%s]: %s is more than the %s of the tenant %s above", name, amount.String(), most.String(), above.Name))
		}
	}
	one.refuse(beyond, remedyBeyond)
}

// remedyBeyond says what to do about a quota that is more than the tenant above has or leaves.
const remedyBeyond = "lower it, or raise the quota of the tenant above. Until then, that quota holds"

// refuse reports that parts of the quota of the Tenant don't apply.
func (one *run) refuse(parts []string, remedy string) {
	if len(parts) > 0 {
		one.flag(&problem{reason: v1alpha1.ReasonInvalidQuota, state: v1alpha1.TenantInvalid, message: strings.Join(parts, "; ") + "; " + remedy})
	}
}

// removeLedger removes the ledger of a tenant of which nothing is left, and its share in the ledger of its parent.
func (one *run) removeLedger(ctx context.Context) error {
	if one.hasParent() {
		if err := one.removeShare(ctx); err != nil {
			return err
		}
	}
	ledger := &v1alpha1.QuotaLedger{}
	err := one.live.Get(ctx, client.ObjectKey{Name: one.tenant.Name}, ledger)
	if err == nil {
		err = one.client.Delete(ctx, ledger)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete the quota ledger: %w", err)
	}
	return nil
}

func (one *run) removeShare(ctx context.Context) error {
	above := &v1alpha1.QuotaLedger{}
	if err := one.live.Get(ctx, client.ObjectKey{Name: one.tenant.Spec.Parent}, above); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := len(above.Status.Shares)
	above.Status.Shares = slices.DeleteFunc(above.Status.Shares, func(s v1alpha1.QuotaShare) bool {
		return s.Kind == v1alpha1.TenantHolder && s.Name == one.tenant.Name
	})
	if len(above.Status.Shares) == before {
		return nil
	}
	if err := one.client.Status().Update(ctx, above, fieldOwner); err != nil {
		return fmt.Errorf("free the share of the quota of tenant %s: %w", above.Name, err)
	}
	return nil
}

// WithoutShares is a transformation for the cache, which needs the specs of ledgers only.
func WithoutShares(o any) (any, error) {
	if ledger, ok := o.(*v1alpha1.QuotaLedger); ok {
		ledger.Status, ledger.ManagedFields = v1alpha1.QuotaLedgerStatus{}, nil
	}
	return o, nil
}
