// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// L1, L3: while goroutines wait for a processor, a long list does its work in many small parts, and keeps nobody from turns while it rests.
func TestHostileLongListsRestWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step, steps = 2 * time.Millisecond, 20
		wait := 10 * time.Millisecond
		turns := pacedTurns(&wait)
		turns.total, turns.share = 1, 1
		slowDown(turns.pace)
		turns.pace.charge("flood", turns.pace.credit)
		began := time.Now()
		held, err := turns.begin(t.Context(), flow{tenant: "flood"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		var longest time.Duration // that another tenant waits
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range steps {
				<-time.After(step)
				held.rest(step)
			}
			held.release()
		}()
		for running := true; running; {
			asked := time.Now()
			if release, err := turns.take(t.Context(), flow{tenant: "quiet-0"}, 1); err == nil {
				longest = max(longest, time.Since(asked))
				release()
			}
			select {
			case <-done:
				running = false
			case <-time.After(time.Millisecond):
			}
		}
		if longest > step {
			t.Errorf("another tenant waited for %s, want %s at most", longest, step)
		}
		if took, least := time.Since(started), time.Duration(float64(steps*step)/turns.pace.units)*9/10; took < least {
			t.Errorf("%s of work took %s, want %s at least (it began after %s)", steps*step, took, least, started.Sub(began))
		}
		turns.mu.Lock()
		defer turns.mu.Unlock()
		if len(turns.lines) > 0 || turns.used != 0 {
			t.Errorf("left over: %+v", turns)
		}
	})
}

// L1: a turn that ends while its work rests leaves nothing behind.
func TestATurnMayEndWhileItsWorkRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := 10 * time.Millisecond
		turns := pacedTurns(&wait)
		slowDown(turns.pace)
		turns.pace.charge("a", turns.pace.credit)
		held, err := turns.begin(t.Context(), flow{tenant: "a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		rested := make(chan struct{})
		began := time.Now()
		go func() {
			defer close(rested)
			held.rest(2 * time.Millisecond)
		}()
		synctest.Wait()
		before := turns.pace.tenants["a"].work
		held.release()
		if after := turns.pace.tenants["a"].work; after != before {
			t.Errorf("%s of rest is charged", after-before)
		}
		<-rested
		if took := time.Since(began); took == 0 || took > restMost {
			t.Errorf("it rested for %s", took)
		}
		held.rest(2 * time.Millisecond) // what is left of its work
		if len(turns.lines) > 0 || turns.used != 0 {
			t.Errorf("left over: %+v", turns)
		}
	})
}

// slowDown has ten tenants ask until the pace has fallen.
func slowDown(p *pace) {
	for range 10 {
		for i := range 10 {
			p.busy(fmt.Sprint("quiet-", i))
		}
		<-time.After(paceEvery)
	}
}
