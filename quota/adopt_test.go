// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/berth-dev/berth/quota"
)

// still is a world in which one process does one thing after the other: a with the children b and c, and a space of each.
func still(t *testing.T, limit quota.Amounts) (*world, *quota.Ledgers) {
	w := &world{t: t, ledgers: map[string]*quota.Ledger{}, spaces: map[string]*hostSpace{}, lowered: map[string]bool{"a": true, "b": true, "c": true}, turn: func(int) error { return nil }}
	for _, tenant := range []struct{ name, parent string }{{"a", ""}, {"b", "a"}, {"c", "a"}} {
		w.ledgers[tenant.name] = &quota.Ledger{Tenant: tenant.name, Parent: tenant.parent, Limit: maps.Clone(limit), Shares: map[quota.Holder]quota.Share{}, Version: tenant.name}
		w.spaces[tenant.name] = &hostSpace{tenant: tenant.name, pods: map[string]quota.Amounts{}}
	}
	n := &node{process: process{w, 0}, gates: map[string]*quota.Gate{}, clock: newClock()}
	return w, quota.New(&n.process, n, n.clock)
}

func grow(t *testing.T, ledgers *quota.Ledgers, r quota.Request) (quota.Amounts, error) {
	t.Helper()
	hard, err := ledgers.Grow(t.Context(), r)
	if err != nil && !quota.IsExceeded(err) {
		t.Fatal(err)
	}
	return hard, err
}

// Q3, Q5: what a space uses before it has a share is reserved for it, also above it in the tree, and nobody else gets it.
func TestUseWithoutAShareIsAdopted(t *testing.T) {
	w, ledgers := still(t, amounts(10, "10"))
	w.older = true
	b := w.spaces["b"]
	b.hasQuota, b.hard, b.pods = true, amounts(100, "100"), map[string]quota.Amounts{"x": amounts(4, "12")}
	if err := ledgers.Settle(t.Context(), "b", "b"); err != nil {
		t.Fatal(err)
	}
	if hard := b.hard; hard.Pods().Value() != 4 {
		t.Errorf("the host lets it use %v, want what it uses", hard)
	}
	if _, err := grow(t, ledgers, quota.Request{Space: "c", Tenant: "c", More: amounts(7, "0")}); err == nil {
		t.Error("another space got what is used")
	}
	if _, err := grow(t, ledgers, quota.Request{Space: "c", Tenant: "c", More: amounts(6, "0")}); err != nil {
		t.Errorf("what is left: %v", err)
	}
	if _, err := grow(t, ledgers, quota.Request{Space: "c", Tenant: "c", More: amounts(0, "1m")}); err == nil {
		t.Error("there is more CPU although too much is used")
	}
	b.pods["x"] = amounts(4, "2")
	b.version++
	ledgers.Freed("b", "b") // as the host's events tell
	if err := ledgers.Trim(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := grow(t, ledgers, quota.Request{Space: "c", Tenant: "c", More: amounts(0, "8")}); err != nil {
		t.Errorf("once less is used: %v", err)
	}
}

// H6: a refusal says what the tenant's own quota is, and nothing of what the tenants above and beside it use.
func TestARefusalFromAboveSaysNothingOfOthers(t *testing.T) {
	w, ledgers := still(t, amounts(10, "10"))
	for _, s := range w.spaces {
		s.hasQuota = true
	}
	if _, err := grow(t, ledgers, quota.Request{Space: "b", Tenant: "b", More: amounts(7, "1")}); err != nil {
		t.Fatal(err)
	}
	w.spaces["b"].pods["x"] = amounts(7, "1")
	_, err := grow(t, ledgers, quota.Request{Space: "c", Tenant: "c", Has: amounts(1, "1"), More: amounts(4, "1")})
	const want = "exceeded quota: tenant c, requested: pods=4, used: pods=1, limited: pods=10; the tenants above leave no more of their quota"
	exceeded := (*quota.Exceeded)(nil)
	if !errors.As(err, &exceeded) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Q3: a ceiling below what a space uses takes nothing away, and refuses nothing else.
func TestACeilingBelowTheUseIsNoError(t *testing.T) {
	w, ledgers := still(t, amounts(10, "10"))
	if _, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", More: amounts(7, "1")}); err != nil {
		t.Fatal(err)
	}
	w.spaces["a"].pods["x"] = amounts(7, "1")
	low := quota.Amounts{"pods": amounts(5, "0")["pods"]}
	hard, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", Ceiling: low, Has: amounts(1, "0"), OnHost: true})
	if err != nil || hard.Pods().Value() != 7 {
		t.Errorf("the host lets it use %v: %v", hard, err)
	}
	if _, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", Ceiling: low, Has: amounts(7, "1"), More: amounts(0, "1")}); err != nil {
		t.Errorf("another resource: %v", err)
	}
	_, err = grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", Ceiling: low, Has: amounts(7, "1"), More: amounts(1, "0")})
	if err == nil || !strings.HasPrefix(err.Error(), "exceeded quota: space a, requested: pods=1, used: pods=7, limited: pods=5") {
		t.Errorf("one more: %v", err)
	}
}

// Q2: if the quota of the space is that of the tenant, as for devices, a refusal names the tenant.
func TestARefusalNamesTheLowerQuota(t *testing.T) {
	w, ledgers := still(t, amounts(4, "4"))
	w.spaces["a"].hasQuota = true
	for ceiling, want := range map[string]string{"4": "tenant a, requested: requests.cpu=5, used: requests.cpu=0, limited: requests.cpu=4", "3": "space a, requested: requests.cpu=5, used: requests.cpu=0, limited: requests.cpu=3"} {
		_, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", Ceiling: quota.Amounts{"requests.cpu": amounts(0, ceiling)["requests.cpu"]}, More: amounts(0, "5")})
		if err == nil || err.Error() != "exceeded quota: "+want {
			t.Errorf("with a ceiling of %s: %v, want %s", ceiling, err, want)
		}
	}
}

// Q1: a resource that nothing limits any more is free again.
func TestAResourceThatIsNoLongerLimitedIsFree(t *testing.T) {
	w, ledgers := still(t, amounts(10, "10"))
	if _, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", More: amounts(2, "1")}); err != nil {
		t.Fatal(err)
	}
	delete(w.ledgers["a"].Limit, "pods")
	w.older = true
	hard, err := grow(t, ledgers, quota.Request{Space: "a", Tenant: "a", Has: amounts(2, "1")})
	if _, limited := hard["pods"]; limited || err != nil {
		t.Errorf("the host still limits it to %v: %v", hard, err)
	}
}
