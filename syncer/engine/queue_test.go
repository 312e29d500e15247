// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// worker notes what a queue has it do, and does it when it may.
type worker struct {
	mu      sync.Mutex
	did     []Key
	now     int // keys under way
	most    int
	perKey  map[Key]int // under way
	doubled bool
	hold    chan struct{} // if not nil, work goes on when something comes
	result  func(Key) next
}

func (w *worker) do(_ context.Context, key Key) next {
	w.mu.Lock()
	if w.perKey == nil {
		w.perKey = map[Key]int{}
	}
	w.did = append(w.did, key)
	w.now++
	w.most = max(w.most, w.now)
	w.perKey[key]++
	w.doubled = w.doubled || w.perKey[key] > 1
	w.mu.Unlock()
	if w.hold != nil {
		<-w.hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now--
	w.perKey[key]--
	if w.result == nil {
		return next{}
	}
	return w.result(key)
}

func (w *worker) times(key Key) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, did := range w.did {
		if did == key {
			n++
		}
	}
	return n
}

// A tenant that changes one object a million times has one key in the queue; a
// key is never worked on twice at once, and what changed meanwhile is not lost.
func TestAFloodOfChangesOfOneObjectIsOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{hold: make(chan struct{})}
		q := newQueue(4, w.do)
		q.open(t.Context())
		defer q.close()
		q.Add(thing("hot"))
		synctest.Wait()
		for range 1_000_000 {
			q.Add(thing("hot"))
		}
		if len(q.marks) != 1 || len(q.first)+len(q.rest) > 1 || w.now != 1 {
			t.Errorf("%d marks, %d keys wait, %d are worked on", len(q.marks), len(q.first)+len(q.rest), w.now)
		}
		close(w.hold)
		synctest.Wait()
		if n := w.times(thing("hot")); n != 2 || w.doubled {
			t.Errorf("it was worked on %d times, at once: %t; want 2: before the flood and after it", n, w.doubled)
		}
	})
}

// However much waits, no more than the limit is under way; and at rest there is
// nothing: no goroutine (a bubble that ends with one fails), no timer, no memory
// of keys.
func TestAQueueAtRestHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{hold: make(chan struct{})}
		q := newQueue(4, w.do)
		q.open(t.Context())
		for i := range 1000 {
			q.Add(thing(fmt.Sprint(i)))
		}
		synctest.Wait()
		if q.empty() || w.now != 4 {
			t.Errorf("%d keys are under way, empty: %t", w.now, q.empty())
		}
		close(w.hold)
		synctest.Wait()
		if w.most > 4 || len(w.did) != 1000 {
			t.Errorf("%d keys were worked on, up to %d at once", len(w.did), w.most)
		}
		if !q.empty() || len(q.marks)+len(q.first)+len(q.rest)+len(q.later) != 0 || q.working != 0 {
			t.Errorf("left over: %d marks, %d waiting, %d later, %d working", len(q.marks), len(q.first)+len(q.rest), len(q.later), q.working)
		}
	})
}

// One space whose API hangs holds its own workers only.
func TestASpaceThatHangsHoldsNoOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung, well := &worker{hold: make(chan struct{})}, &worker{}
		bad, good := newQueue(2, hung.do), newQueue(2, well.do)
		bad.open(t.Context())
		good.open(t.Context())
		for i := range 100 {
			bad.Add(thing(fmt.Sprint(i)))
		}
		synctest.Wait()
		good.Add(thing("mine"))
		synctest.Wait()
		if hung.now != 2 || well.times(thing("mine")) != 1 {
			t.Errorf("%d of the flood are under way; the other's was done %d times", hung.now, well.times(thing("mine")))
		}
		close(hung.hold)
		bad.close()
		good.close()
	})
}

// pass lets a bubble's time pass.
func pass(d time.Duration) { <-time.After(d) }

// A burst of new objects goes before the changes of old ones, and does not
// starve them.
func TestWhatIsNewGoesFirstAndStarvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &worker{}
		q := newQueue(1, w.do)
		for i := range 100 {
			q.Add(thing(fmt.Sprint("changed-", i)))
			q.addFirst(thing(fmt.Sprint("new-", i)))
		}
		q.open(t.Context())
		synctest.Wait()
		news, changes := 0, 0
		for i, key := range w.did[:100] {
			if strings.HasPrefix(key.Name, "new-") {
				news++
			} else if changes++; changes > 1+i/restTurn {
				t.Fatalf("%d changes went before new objects within %d", changes, i+1)
			}
		}
		if news < 85 || changes < 10 || len(w.did) != 200 {
			t.Errorf("of the first 100 were %d new, %d changed; %d in all", news, changes, len(w.did))
		}
	})
}

func TestAKeyComesAgainWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]next{
			"soon":    {after: time.Minute},
			"late":    {after: time.Hour},
			"refused": {after: time.Second, idle: true, refused: true},
		}
		w := &worker{result: func(key Key) next { return results[key.Name] }}
		q := newQueue(4, w.do)
		if q.empty() {
			t.Error("empty before it is open")
		}
		q.Add(thing("late")) // what comes before it is open is kept
		q.open(t.Context())
		q.Add(thing("soon"))
		q.Add(thing("refused"))
		synctest.Wait()
		begin := time.Now()
		if at, ok := q.nextTimer(); !ok || !at.Equal(begin.Add(time.Minute)) || !q.empty() {
			t.Errorf("next is %v, %t: want the first that sleep must not keep waiting", at.Sub(begin), ok)
		}
		pass(59 * time.Second)
		synctest.Wait()
		if n := w.times(thing("soon")); n != 1 {
			t.Errorf("done %d times before it is due", n)
		}
		pass(time.Second)
		synctest.Wait()
		if n := w.times(thing("soon")); n != 2 {
			t.Errorf("done %d times when it is due", n)
		}
		// A change brings it earlier, and what comes of that counts.
		results["soon"] = next{}
		q.Add(thing("soon"))
		synctest.Wait()
		if at, ok := q.nextTimer(); !ok || !at.Equal(begin.Add(time.Hour)) {
			t.Errorf("next is %v, %t", at.Sub(begin), ok)
		}
		q.close()
		if _, ok := q.nextTimer(); ok || len(q.later) != 0 {
			t.Error("timers run on after the end")
		}
		done := len(w.did)
		q.Add(thing("after the end"))
		pass(2 * time.Hour)
		synctest.Wait()
		if len(w.did) != done {
			t.Errorf("worked on after the end: %v", w.did[done:])
		}
	})
}
