// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds_test

import (
	"errors"
	"testing"

	"github.com/berth-dev/berth/bounds"
)

// L3: what is promised is counted once, is never more than the limit, and is given back at the end of the work.
func TestAPromiseIsCountedOnce(t *testing.T) {
	const q = bounds.ServicePortsTotal
	a := bounds.NewAccount(bounds.Limits{q: 10})
	uses := func(want int64) {
		t.Helper()
		if got := a.Used(q); got != want {
			t.Fatalf("%d are in use, want %d", got, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	one, two := &bounds.Work{}, &bounds.Work{}
	one.Begin()
	two.Begin()
	must(a.Promise(one, q, 6))
	if err := a.Promise(two, q, 5); !errors.Is(err, bounds.ErrExceeded) {
		t.Errorf("more than there is: %v", err)
	}
	must(a.Promise(one, q, 8)) // asked again
	uses(8)
	must(a.TakePromised(one, q, 7))
	uses(8)
	one.Done()
	uses(7)
	must(a.Promise(two, q, 2))
	if err := a.TakePromised(two, q, 4); !errors.Is(err, bounds.ErrExceeded) {
		t.Errorf("more than was promised, and than there is: %v", err)
	}
	uses(7)
	must(a.TakePromised(two, q, 3))
	must(a.Promise(two, q, 0))
	two.Done()
	uses(10)
	must((*bounds.Account)(nil).Promise(one, q, 99))
	must(a.Promise(nil, q, 99))
	if err := a.TakePromised(nil, q, 1); !errors.Is(err, bounds.ErrExceeded) {
		t.Errorf("without work: %v", err)
	}
	uses(10)
}
