// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "testing"

func TestAStoreIsIdleOnceNobodyUsedItForAWhile(t *testing.T) {
	released := 0
	i := &idler{release: func() { released++ }}
	defer i.stop()
	i.touch()
	i.look() // it was used meanwhile
	if released != 0 || !i.set.Load() {
		t.Fatalf("released %d times in use, timer set: %t", released, i.set.Load())
	}
	i.look()
	if released != 1 || i.set.Load() {
		t.Errorf("released %d times, timer set: %t: an idle store must not be woken", released, i.set.Load())
	}
	i.touch()
	if !i.set.Load() {
		t.Error("the next use doesn't set the timer")
	}
	i.look()
	i.stop()
	if i.touch(); i.set.Load() {
		i.look()
	}
	if i.look(); i.set.Load() {
		t.Error("the timer is set after the end")
	}
}
