// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"strings"
	"testing"
)

// D3, L3 (S16): one space that fills the file system must not keep the others from writing.
func TestHostileTheLargestStoreIsTheFirstThatMayNotGrow(t *testing.T) {
	const gib = 1 << 30
	free := int64(2 * gib)
	v := newVolume(func() (int64, int64, error) { return free, 10 * gib, nil })
	large, middle, small := &storeBudget{}, &storeBudget{}, &storeBudget{}
	large.used.Store(900 << 20)
	middle.used.Store(300 << 20)
	small.used.Store(2 << 20)
	for _, b := range []*storeBudget{large, middle, small} {
		v.add(b)
	}
	for _, c := range []struct {
		reason               string
		free                 int64
		large, middle, small bool
	}{
		{"there is enough", 2 * gib, true, true, true},
		{"the reserve is touched", 500 << 20, false, true, true},
		{"most of the reserve is gone", 100 << 20, false, false, true},
		{"nothing is left", 0, false, false, true},
		{"somebody has deleted something", 600 << 20, true, true, true},
	} {
		free = c.free
		if l, m, s := v.mayGrow(large, true), v.mayGrow(middle, true), v.mayGrow(small, true); l != c.large || m != c.middle || s != c.small {
			t.Errorf("%s: large %t, middle %t, small %t, want %t, %t, %t", c.reason, l, m, s, c.large, c.middle, c.small)
		}
	}
	free = 200 << 20
	if !v.mayGrow(large, false) {
		t.Error("what is there may not be updated, nor deleted, while most of the reserve is left")
	}
	free = 20 << 20
	if v.mayGrow(large, false) {
		t.Error("updates of the largest use up the reserve")
	}
	free = 500 << 20
	v.remove(large)
	if v.mayGrow(middle, true) {
		t.Error("the largest that is left may grow while the reserve is touched")
	}
}

// D3, L3: stores that are received at the same time don't fill the file system.
func TestHostileFilesDoNotTakeTheSpaceOfStores(t *testing.T) {
	const gib = 1 << 30
	free := int64(3 * gib)
	v := newVolume(func() (int64, int64, error) { return free, 10 * gib, nil })
	first, err := v.Reserve(2*gib, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Reserve(gib, true); err == nil || !strings.Contains(err.Error(), "enlarge it") {
		t.Errorf("a second file in the space of the first: %v", err)
	}
	small, err := v.Reserve(gib/4, true)
	if err != nil {
		t.Errorf("a second file beside the first: %v", err)
	}
	first()
	first()
	small()
	if _, err := v.Reserve(3*gib, true); err == nil {
		t.Error("a file takes what is kept for stores")
	}
	again, err := v.Reserve(2*gib, true)
	if err != nil {
		t.Fatalf("after the first file: %v", err)
	}
	again()
	free = 400 << 20
	if _, err := v.Reserve(100<<20, true); err == nil {
		t.Error("a tenant's file takes what is kept for stores")
	}
	for what, size := range map[string]int64{"a small file": smallStore, "the platform's own": 200 << 20} {
		end, err := v.Reserve(size, size == smallStore)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		end()
	}
}
