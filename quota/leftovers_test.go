// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"errors"
	"testing"

	"github.com/berth-dev/berth/quota"
)

// Q5: the operator frees the share that a space without an object and a quota has. A space of that name that comes back between its look and
// its write changes the ledger, so that the write fails: otherwise, the host would let the space use what nobody reserves.
func TestAShareThatIsUsedAgainIsNotFreed(t *testing.T) {
	w, ledgers := still(t, amounts(10, "10"))
	w.older = true
	w.ledgers["a"].Shares[quota.Space("a")] = quota.Share{Reserved: amounts(8, "8")} // left by an earlier space
	before := clone(w.ledgers["a"])
	if _, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", Ceiling: quota.Amounts{}, Has: amounts(1, "1"), OnHost: true}); err != nil {
		t.Fatal(err)
	}
	delete(before.Shares, quota.Space("a"))
	n := process{w, 0}
	if err := n.UpdateLedger(t.Context(), before); !errors.Is(err, quota.ErrConflict) {
		t.Errorf("the share is freed (%v), and the host lets the space use %v", err, w.spaces["a"].hard)
	}
}
