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
)

// pacedTurns are turns of a process with two processors, whose goroutines wait as long as the test says.
func pacedTurns(wait *time.Duration) *turns {
	return pacedTurnsBy(func() time.Duration { return *wait })
}

func pacedTurnsBy(wait func() time.Duration) *turns {
	t := newTurns(64, 32)
	t.pace = newPace(32, 2)
	delayedBy(t.pace, wait)
	return t
}

// delayedBy has goroutines wait as long as the test says.
func delayedBy(p *pace, wait func() time.Duration) {
	looks := uint64(0)
	p.delays = func() delays {
		looks += 100
		return delays{counts: []uint64{0, looks}, seconds: []float64{0, wait().Seconds()}}
	}
}

// use has a space use what it gets, by requests that take 2 ms each, from clients that always want more, and returns how many
// were executed.
func use(t *testing.T, turns *turns, space string, clients int, d time.Duration) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	done := make(chan int)
	for range clients {
		go func() {
			n := 0
			for ; ; n++ {
				release, err := turns.take(ctx, flow{tenant: space}, writeCost)
				if err != nil {
					break
				}
				<-time.After(2 * time.Millisecond)
				release()
			}
			done <- n
		}()
	}
	total := 0
	for range clients {
		total += <-done
	}
	return total
}

// L1, L3: while goroutines wait for a processor, a space that floods has an equal share of the processors, also by one request
// after the other. One that is alone, or in a process that is not too busy, is not slowed.
func TestHostileAFloodIsSlowedWhileOthersWait(t *testing.T) {
	const alone = 8 * 500 // requests a second of eight clients
	for name, c := range map[string]struct {
		wait            time.Duration
		others, clients int
		least, most     int // requests in a second
	}{
		"alone":               {10 * time.Millisecond, 0, 8, alone * 9 / 10, alone * 11 / 10},
		"nobody waits":        {0, 9, 8, alone * 9 / 10, alone * 11 / 10},
		"others wait":         {10 * time.Millisecond, 9, 8, 80, 130}, // 0.2 processors, 2 ms each
		"one after the other": {10 * time.Millisecond, 9, 1, 80, 130},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := pacedTurns(&c.wait)
				ctx, cancel := context.WithCancel(t.Context())
				for i := range c.others {
					go func() {
						for ctx.Err() == nil {
							if release, err := turns.take(ctx, flow{tenant: fmt.Sprint("quiet-", i)}, writeCost); err == nil {
								<-time.After(time.Millisecond)
								release()
							}
							<-time.After(100 * time.Millisecond)
						}
					}()
				}
				use(t, turns, "flood", c.clients, 5*time.Second) // until the pace has found its place
				if n := use(t, turns, "flood", c.clients, 2*time.Second) / 2; n < c.least || n > c.most {
					t.Errorf("the flood had %d requests a second, want %d to %d", n, c.least, c.most)
				}
				cancel()
				synctest.Wait()
				<-time.After(time.Minute)
				turns.mu.Lock()
				defer turns.mu.Unlock()
				if len(turns.lines) > 0 || len(turns.waiting) > 0 || turns.used > 0 {
					t.Errorf("left over: %+v", turns)
				}
			})
		})
	}
}

// L1, L3: a space that begins to flood does not have everything that its neighbors left unused, while the pace falls.
func TestHostileAFloodBeginsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wait time.Duration
		turns := pacedTurns(&wait)
		quiet := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); <-time.After(paceEvery) {
				for _, space := range []string{"quiet-0", "quiet-1"} {
					release, err := turns.take(t.Context(), flow{tenant: space}, readCost)
					if err != nil {
						t.Fatal(err)
					}
					release()
				}
			}
		}
		quiet(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		for range 2 * turns.share {
			flood.Go(func() {
				if release, err := turns.take(ctx, flow{tenant: "flood"}, writeCost); err == nil {
					<-ctx.Done()
					release()
				}
			})
		}
		has := func() int {
			synctest.Wait()
			turns.mu.Lock()
			defer turns.mu.Unlock()
			return turns.lines["flood"].used
		}
		if got, want := has(), int(turns.pace.first()); got != want {
			t.Errorf("it begins with %d units, want %d", got, want)
		}
		quiet(10 * time.Second) // and nobody waits for a processor
		if got := has(); got != turns.share {
			t.Errorf("after 10 s it has %d units, want %d", got, turns.share)
		}
		cancel()
		flood.Wait()
	})
}

// L1: a space that has goroutines wait for a moment of each second takes from others no more than what is beyond their share.
func TestHostilePulsesLeaveOthersTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := pacedTurnsBy(func() time.Duration {
			if time.Duration(time.Now().Nanosecond()) < paceEvery {
				return 10 * time.Millisecond
			}
			return 0
		})
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 9 {
			go func() {
				for ctx.Err() == nil {
					_ = use(t, turns, fmt.Sprint("pulse-", i), 1, paceEvery)
					<-time.After(time.Second - paceEvery)
				}
			}()
		}
		use(t, turns, "worker", 8, 30*time.Second)                      // until the pace has found its place
		if n := use(t, turns, "worker", 8, 2*time.Second) / 2; n < 80 { // 0.2 processors, 2 ms each
			t.Errorf("the others leave it %d requests a second", n)
		}
		cancel()
		<-time.After(2 * time.Second)
	})
}

// What people do now and then is never slowed.
func TestASpaceHasCreditForWhatItDoesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := 10 * time.Millisecond
		turns := pacedTurns(&wait)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				_ = use(t, turns, "flood", 8, time.Second)
			}
		}()
		<-time.After(5 * time.Second)
		if n := use(t, turns, "quiet", 4, 100*time.Millisecond); n < 40 {
			t.Errorf("a space that was quiet had %d requests at once", n)
		}
		cancel()
		<-time.After(2 * time.Second)
	})
}

// A process forgets spaces that ask nothing, and takes what it measured of them for nothing.
func TestThePaceForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := 10 * time.Millisecond
		turns := pacedTurns(&wait)
		for i := range 1000 {
			use(t, turns, fmt.Sprint("space-", i), 1, 3*time.Millisecond)
		}
		<-time.After(2 * paceActive)
		use(t, turns, "last", 1, 3*time.Millisecond)
		if n := len(turns.pace.tenants); n != 1 {
			t.Errorf("%d spaces are kept", n)
		}
		if units := turns.pace.units; units != turns.pace.most {
			t.Errorf("a space that is alone may have %v of %v", units, turns.pace.most)
		}
	})
}

func TestDelaysAreWhatOneInAHundredWaits(t *testing.T) {
	before := delays{counts: []uint64{1000, 500, 0}, seconds: []float64{0, 0.001, 0.01}}
	for name, c := range map[string]struct {
		counts []uint64
		want   time.Duration
	}{
		"nothing":            {[]uint64{1000, 500, 0}, 0},
		"all at once":        {[]uint64{1300, 500, 0}, 0},
		"one in a hundred":   {[]uint64{1099, 500, 1}, 0},
		"three in a hundred": {[]uint64{1097, 500, 3}, 10 * time.Millisecond},
		"many, shortly":      {[]uint64{1050, 550, 1}, time.Millisecond},
	} {
		now := delays{counts: c.counts, seconds: before.seconds}
		if got := now.since(before); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if d := schedulerDelays(); len(d.counts) == 0 || len(d.seconds) != len(d.counts)+1 {
		t.Errorf("the runtime says %d counts in %d buckets", len(d.counts), len(d.seconds))
	}
}

// L3: parts of a long answer take turns once its own is over, and wait for no other after its client is gone.
func TestHostilePartsOfLongAnswersTakeTurns(t *testing.T) {
	turns := newTurns(4, 1)
	busy, err := turns.take(t.Context(), flow{tenant: "a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	recorder := httptest.NewRecorder()
	w := &partsWriter{ResponseWriter: recorder, ctx: ctx, turn: func(ctx context.Context) (func(), error) {
		return turns.take(ctx, flow{tenant: "a"}, partCost)
	}}
	if _, err := w.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	w.over.Store(true)
	written := make(chan error)
	write := func() {
		_, err := w.Write([]byte(" second"))
		written <- err
	}
	go write()
	for waiting := 0; waiting == 0; {
		turns.mu.Lock()
		waiting = len(turns.waiting)
		turns.mu.Unlock()
	}
	if got := recorder.Body.String(); got != "first" {
		t.Errorf("before its turn %q is written", got)
	}
	busy()
	if err := <-written; err != nil || recorder.Body.String() != "first second" {
		t.Errorf("at its turn %q is written: %v", recorder.Body, err)
	}
	busy, err = turns.take(t.Context(), flow{tenant: "a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer busy()
	go write()
	cancel()
	if err := <-written; err == nil || recorder.Code != http.StatusOK {
		t.Errorf("without a client a part is written: %v", err)
	}
}

// A part whose turn does not come is written: what ends a request can't end the wait.
func TestAPartWaitsASecondAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(4, 1)
		busy, err := turns.take(t.Context(), flow{tenant: "a"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer busy()
		recorder := httptest.NewRecorder()
		w := &partsWriter{ResponseWriter: recorder, ctx: t.Context(), turn: func(ctx context.Context) (func(), error) {
			return turns.take(ctx, flow{tenant: "a"}, partCost)
		}}
		w.over.Store(true)
		begun := time.Now()
		if _, err := w.Write([]byte("part")); err != nil || recorder.Body.String() != "part" || time.Since(begun) != partWait {
			t.Errorf("after %v %q is written: %v", time.Since(begun), recorder.Body, err)
		}
	})
}

// However much a space did, it waits for some seconds only, and none of its requests is refused for that.
func TestHostileNobodyWaitsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := 10 * time.Millisecond
		turns := pacedTurns(&wait)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 50 { // of the attacker
			go func() {
				for ctx.Err() == nil {
					if release, err := turns.take(ctx, flow{tenant: fmt.Sprint("pulse-", i)}, writeCost); err == nil {
						release()
					}
					<-time.After(time.Second)
				}
			}()
		}
		<-time.After(10 * time.Second)
		for range 20 {
			release, err := turns.take(ctx, flow{tenant: "busy"}, writeCost)
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
			release()
		}
		begun := time.Now()
		release, err := turns.take(ctx, flow{tenant: "busy"}, writeCost)
		if took := time.Since(begun); err != nil || took > paceWait+paceEvery {
			t.Errorf("after 20 s of work it waits for %v: %v", took, err)
		}
		release()
		cancel()
		<-time.After(2 * time.Second)
	})
}

// L3: in a busy process, a client that connects again and again has a quarter of a processor, although no other connects.
func TestHostileHandshakesAreSlowedWhileOthersWait(t *testing.T) {
	for name, c := range map[string]struct {
		wait        time.Duration
		least, most int // turns of 2 ms in a second
	}{
		"nobody waits": {0, 490, 510},
		"others wait":  {10 * time.Millisecond, 100, 160}, // and some until it is noticed
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				turns := newTurns(1, 1)
				turns.pace = newHandshakePace(1, 2)
				delayedBy(turns.pace, func() time.Duration { return c.wait })
				if n := use(t, turns, "192.0.2.1", 8, time.Second); n < c.least || n > c.most {
					t.Errorf("%d handshakes, want %d to %d", n, c.least, c.most)
				}
			})
		})
	}
}
