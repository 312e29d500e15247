// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quota holds all spaces of a tenant, and all tenants below it, to the tenant's quota.
//
// Each tenant has a ledger on the host, see [v1alpha1.QuotaLedger]. It divides the quota into shares: one for each space
// of the tenant, and one for each tenant directly below, whose own ledger divides that share further. The share of a
// space is in the ResourceQuota of its namespace on the host, where the host enforces it. So the data path needs no
// ledger: only a space that needs more than its share asks for more, and gets some that nobody has reserved, or that
// others have reserved and don't use.
//
// Each write is a compare-and-swap of one object, and after each one the following holds, so that any process may end
// at any write, and any number of processes may do this at the same time:
//
//   - The shares that a ledger has reserved are, together, at most its capacity: the tenant's limit, and what the
//     ledger above grants it.
//   - What a holder has, which is the ResourceQuota of a space or the allotted field of a ledger, is at most what is
//     reserved for it.
//   - What a holder uses is at most what it has.
//
// A share is raised from the top down: first the ledger, then the holder. It is lowered from the bottom up: the ledger
// notes to what, with a new mark; the holder gets less, unless it uses it, and the mark; and then the ledger reserves
// less. Whoever sees a step that is missing does it. The mark makes sure that a process that read, before all this,
// that more was granted meets a conflict when it writes that to the holder.
//
// The one exception is a limit that an admin lowers below what is used: nothing is taken away that is used, and nobody
// gets more until the use is below the limit.
package quota
