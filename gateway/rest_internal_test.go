// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/bounds"
)

// slowDown has many tenants ask, until the end of the test, and returns when the pace has fallen.
func slowDown(t *testing.T, p *pace) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		asking.Wait()
	})
	asking.Go(func() {
		for ctx.Err() == nil {
			for i := range 10 * int(p.processors) {
				p.busy(fmt.Sprint("quiet-", i))
			}
			<-time.After(paceEvery)
		}
	})
	<-time.After(10 * paceEvery)
}

// restingTurn is a turn of a tenant that has had its share in a busy process.
func restingTurn(t *testing.T) *turn {
	t.Helper()
	wait := 10 * time.Millisecond
	turns := pacedTurns(&wait)
	turns.total, turns.share = 1, 1
	slowDown(t, turns.pace)
	turns.pace.charge("flood", turns.pace.credit)
	held, err := turns.begin(t.Context(), flow{tenant: "flood"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// floodWork is the work that the tenant of restingTurn has not paid for yet.
func floodWork(p *pace) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of("flood", time.Now()).work
}

func unitsOf(p *pace) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.units
}

// nothingLeft reports what turns still count.
func nothingLeft(t *testing.T, turns *turns) {
	t.Helper()
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if len(turns.lines) > 0 || turns.used != 0 || turns.resting != 0 {
		t.Errorf("left over: %+v", turns)
	}
}

// L1, L3: while goroutines wait for a processor, a long list does its work in many small parts, and keeps nobody from turns while it rests.
func TestHostileLongListsRestWhileOthersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const step, steps = 2 * time.Millisecond, 20
		held := restingTurn(t)
		turns, began := held.turns, time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range steps {
				<-time.After(step)
				held.rest()
			}
			held.release()
		}()
		var longest time.Duration // that another tenant waits
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
		if took, least := time.Since(began), time.Duration(float64(steps*step)/unitsOf(turns.pace))*9/10; took < least {
			t.Errorf("%s of work took %s, want %s at least", steps*step, took, least)
		}
		nothingLeft(t, turns)
	})
}

// L1: several goroutines of a request may rest at once, and its turn may end meanwhile. What they did is charged once, and their rest is not.
func TestHostileATurnEndsWhileItsGoroutinesRest(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			held := restingTurn(t)
			turns := held.turns
			work := func() time.Duration { return floodWork(turns.pace) }
			<-time.After(2 * time.Millisecond)
			var rests sync.WaitGroup
			rests.Go(held.rest)
			synctest.Wait()
			<-time.After(time.Millisecond)
			rests.Go(held.rest)
			synctest.Wait()
			before := work()
			if ends {
				held.release()
				if after := work(); after > before {
					t.Errorf("%s of rest is charged", after-before)
				}
			}
			rests.Wait()
			if after := work(); after > before {
				t.Errorf("%s of rest is charged", after-before)
			}
			before = work()
			held.release()
			if after := work(); after > before {
				t.Errorf("%s of rest is charged at the end", after-before)
			}
			held.rest() // what is left of its work
			nothingLeft(t, turns)
		})
	}
}

// Work between two rests is charged, however long it is.
func TestHostileWorkBeforeARestIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := restingTurn(t)
		held.ticket.charged = false // it began while the process was not busy
		<-time.After(200 * time.Millisecond)
		paid := time.Duration(200 * float64(time.Millisecond) * unitsOf(held.turns.pace))
		_ = held.beginRest(time.Now())
		if got, want := floodWork(held.turns.pace)-held.turns.pace.credit, 200*time.Millisecond-paid; got < want*9/10 {
			t.Errorf("%s is charged, want %s", got, want)
		}
		if !held.ticket.charged {
			t.Error("what follows is not charged")
		}
	})
}

// L1: lists that rest have objects in memory. No more of them rest than may execute.
func TestHostileFewListsRestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := restingTurn(t)
		turns := first.turns
		<-time.After(2 * time.Millisecond)
		if wait := first.beginRest(time.Now()); wait == 0 {
			t.Fatal("the first does not rest")
		}
		turns.pace.charge("other", turns.pace.credit)
		second, err := turns.begin(t.Context(), flow{tenant: "other"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Millisecond)
		if wait := second.beginRest(time.Now()); wait > 0 || turns.resting > turns.total {
			t.Errorf("%d lists rest, want %d at most", turns.resting, turns.total)
		}
	})
}

// A list rests for 5 s at most: its request has a deadline.
func TestAListDoesNotRestForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := restingTurn(t)
		began := time.Now()
		for range 5000 {
			<-time.After(2 * time.Millisecond)
			held.rest()
		}
		held.release()
		if rested := time.Since(began) - 10*time.Second; rested < restTotal || rested > restTotal+restMost {
			t.Errorf("it rested for %s, want %s", rested, restTotal)
		}
	})
}

// L1: the turn of a list lasts for its lease of work, whether it rests or not; only rests make it longer.
func TestHostileListsThatYieldKeepNoTurn(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLimiter(LimiterConfig{})
				if busy {
					delayedBy(l.others.pace, func() time.Duration { return 10 * time.Millisecond })
					slowDown(t, l.others.pace)
					l.others.pace.charge(ofSpace+"a", time.Second)
				}
				var took time.Duration
				list := func(_ http.ResponseWriter, r *http.Request) {
					began := time.Now()
					for used := 1; used > 0; {
						<-time.After(2 * time.Millisecond)
						bounds.WorkOf(r.Context()).Yield()
						l.lists.mu.Lock()
						used = 0
						if line := l.lists.lines[ofSpace+"a"]; line != nil {
							used = line.used
						}
						l.lists.mu.Unlock()
						if took = time.Since(began); took > time.Minute {
							break
						}
					}
				}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods", http.NoBody)
				l.limit("a", "", nil, http.HandlerFunc(list)).ServeHTTP(flushRecorder{httptest.NewRecorder()}, r)
				most := listLease + 10*time.Millisecond
				if busy {
					most += restTotal + restMost
				}
				if took > most || busy && took < 2*listLease {
					t.Errorf("it has its turn for %s, want %s at most", took, most)
				}
				nothingLeft(t, l.lists)
			})
		})
	}
}
