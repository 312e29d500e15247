// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spacequota

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// L3: the host counts again once it has counted differently for some time, and ever more seldom while that doesn't help: a tenant can have
// it count differently for good.
func TestTheHostCountsAgainEverMoreSeldom(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	q := &Quotas{Options: Options{Clock: clock}, drifts: map[string]drift{}}
	const space = "a"
	var at []time.Duration
	for begin := clock.Now(); clock.Since(begin) < 2*time.Hour; {
		due, again := q.recountDue(space, true)
		if due {
			at = append(at, clock.Since(begin))
		}
		if again < time.Second || again > lastRecount {
			t.Fatalf("it is to be asked again after %s", again)
		}
		clock.Step(again)
	}
	if len(at) < 10 || len(at) > 20 || at[0] != driftTime || at[1] != driftTime+firstRecount || at[len(at)-1]-at[len(at)-2] != lastRecount {
		t.Errorf("the host counts after %v", at)
	}
	if due, again := q.recountDue(space, false); due || again != 0 || len(q.drifts) > 0 {
		t.Errorf("once it agrees: %v, %s, %v", due, again, q.drifts)
	}
	if due, again := q.recountDue(space, true); due || again != driftTime {
		t.Errorf("at the next time: %v, %s", due, again)
	}
}
