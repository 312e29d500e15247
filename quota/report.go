// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

// Report is what a space may know of the quota of its tenant: nothing of the tenants above, or of other tenants.
type Report struct {
	Tenant string
	// Limit is the quota of the tenant, and Used what the spaces use that are the tenant's own.
	Limit, Used Amounts
	// SpaceLimit is what the space may use at most, and SpaceUsed what it uses.
	SpaceLimit, SpaceUsed Amounts
}
