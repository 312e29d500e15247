// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"testing"
	"time"
)

func TestStatsAreOfAllRequests(t *testing.T) {
	var first, second Stats
	for i := range 99 {
		first.note(time.Duration(i+1)*time.Millisecond, time.Second, nil)
	}
	failure := errors.New("failed")
	second.note(2*time.Second, time.Second, failure)
	first.Add(second)
	if first.Requests != 100 || first.Failed != 1 || first.Held != 1 || first.Longest != 2*time.Second || !errors.Is(first.FirstFailure, failure) {
		t.Errorf("the sum is %+v", first)
	}
	for p, want := range map[float64]time.Duration{1: time.Millisecond, 50: 50 * time.Millisecond, 99: 99 * time.Millisecond, 100: 2 * time.Second} {
		if is := first.Percentile(p); is < want || is > want*101/100 {
			t.Errorf("p%v is %s, want %s and at most 1 %% more", p, is, want)
		}
	}
	if is := (&Stats{}).Percentile(99); is != 0 {
		t.Errorf("the p99 of none is %s", is)
	}
}
