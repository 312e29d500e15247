// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/quota"
)

// L3: the host counts again once it has counted differently for some time, and ever more seldom while that doesn't help: a tenant can have
// it count differently for good.
func TestTheHostCountsAgainEverMoreSeldom(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	q := &Quotas{Options: Options{Clock: clock}, drifts: map[string]drift{}}
	const space = "a"
	differs := quota.Amounts{"pods": resource.MustParse("1")}
	var at []time.Duration
	begin := clock.Now()
	for clock.Since(begin) < 2*time.Hour {
		if q.recountDue(space, differs) {
			at = append(at, clock.Since(begin))
		}
		clock.Step(time.Second)
	}
	if len(at) < 10 || len(at) > 20 || at[0] != driftTime || at[1] != driftTime+firstRecount || at[len(at)-1]-at[len(at)-2] != lastRecount {
		t.Errorf("the host counts after %v", at)
	}
	for i := range 100 { // a space that changes all the time
		if q.recountDue(space, quota.Amounts{"pods": *resource.NewQuantity(int64(2+i), resource.DecimalSI)}) {
			t.Error("the host counts again what it has only begun to count differently")
		}
		clock.Step(driftTime / 2)
	}
	if q.recountDue(space, nil) || len(q.drifts) > 0 {
		t.Errorf("once it agrees: %v", q.drifts)
	}
}
