// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/quota"
)

// Most returns how much a space may use while nobody else uses anything of the quota of its tenant: that quota, or what the space's own
// quota leaves of it. It is nil for a space without a tenant, and for one whose tenant has no quota yet.
func (q *Quotas) Most(ctx context.Context, space string) (quota.Amounts, error) {
	_, most, err := q.Limits(ctx, space)
	return most, err
}

// Limits returns the quota of the tenant of a space, and what [Quotas.Most] returns.
func (q *Quotas) Limits(ctx context.Context, space string) (limit, most quota.Amounts, err error) {
	tenant, ceiling := q.Of(space)
	if tenant == "" {
		return nil, nil, nil
	}
	limit, err = q.ledgers.Limit(ctx, tenant)
	switch {
	case errors.Is(err, quota.ErrNotFound):
		return nil, nil, nil
	case err != nil:
		return nil, nil, fmt.Errorf("read the quota of tenant %s: %w", tenant, err)
	}
	return limit, quota.Lowest(limit, ceiling), nil
}
