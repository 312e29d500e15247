// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// waits begins a take, and returns when it waits or has been granted.
func waits(ctx context.Context, t interface{ Fatalf(string, ...any) }, turns *turns, space string, cost int, granted chan<- string) {
	turns.mu.Lock()
	l := turns.lines[space]
	if l == nil {
		l = &line{tenant: space}
		turns.lines[space] = l
	}
	before := l.waiting()
	turns.mu.Unlock()
	go func() {
		if _, err := turns.take(ctx, flow{tenant: space}, cost); err == nil {
			granted <- space
		}
	}()
	for {
		turns.mu.Lock()
		now := l.waiting()
		turns.mu.Unlock()
		if now > before {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("it does not wait")
		}
	}
}

// waiting is how many requests of the tenant wait.
func (l *line) waiting() (n int) {
	for _, u := range l.users {
		n += len(u.tickets)
	}
	return n
}

// L1: within a tenant, users take turns, however many requests one of them has waiting.
func TestUsersOfATenantTakeTurns(t *testing.T) {
	turns := newTurns(1, 1)
	release, err := turns.take(t.Context(), flow{tenant: "solar", user: 9}, 1)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan flow)
	wait := func(who flow, together int) {
		go func() {
			if _, err := turns.take(t.Context(), who, 1); err == nil {
				granted <- who
			}
		}()
		for n := 0; n < together; {
			turns.mu.Lock()
			for _, u := range turns.lines[who.tenant].users {
				if u.user == who.user {
					n = len(u.tickets)
				}
			}
			turns.mu.Unlock()
		}
	}
	for i := range 5 {
		wait(flow{tenant: "solar", user: 1}, i+1)
	}
	wait(flow{tenant: "solar", user: 2}, 1)
	release()
	for i := range 6 {
		who := <-granted
		if who.user == 2 {
			if i > 1 {
				t.Errorf("the other user's request came after %d of the flood, not after one", i)
			}
			return
		}
		turns.mu.Lock()
		turns.used, turns.lines["solar"].used = 0, 0
		turns.grant()
		turns.mu.Unlock()
	}
	t.Error("the other user's request never came")
}

// L1: however many requests a space has waiting, another one's comes after one of them.
func TestSpacesTakeTurns(t *testing.T) {
	turns := newTurns(1, 1)
	release, err := turns.take(t.Context(), flow{tenant: "first"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan string)
	for range 5 {
		waits(t.Context(), t, turns, "flood", 1, granted)
	}
	waits(t.Context(), t, turns, "b", 1, granted)
	waits(t.Context(), t, turns, "c", 1, granted)
	release()
	var order []string
	for range 7 {
		space := <-granted
		order = append(order, space)
		turns.mu.Lock()
		l := turns.lines[space]
		turns.mu.Unlock()
		turns.give(l, &ticket{cost: 1})
	}
	if want := []string{"flood", "b", "c", "flood", "flood", "flood", "flood"}; !slices.Equal(order, want) {
		t.Errorf("turns: %v, want %v", order, want)
	}
	if len(turns.lines) > 0 || len(turns.waiting) > 0 || turns.used > 0 {
		t.Errorf("left over: %+v", turns)
	}
}

// L1: a space that has its share leaves the rest, at once.
func TestASpaceThatHasItsShareLeavesTheRest(t *testing.T) {
	turns := newTurns(4, 2)
	granted := make(chan string)
	for range 2 {
		if _, err := turns.take(t.Context(), flow{tenant: "flood"}, 1); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		waits(t.Context(), t, turns, "flood", 1, granted)
	}
	if _, err := turns.take(t.Context(), flow{tenant: "quiet"}, 2); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.take(ended, flow{tenant: "quiet"}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("beyond its share: %v", err)
	}
}

// Whatever is taken, given back and given up in whatever order, nobody has more than there is, and nothing is left over.
func TestTurnsAreNeverMoreThanThereAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.IntRange(1, 8).Draw(t, "total")
		turns := newTurns(total, rapid.IntRange(1, total).Draw(t, "share"))
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		type held struct{ release func() }
		var all []held
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "give") {
				i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
				all[i].release()
				all[i].release() // more than once is as once
				all = slices.Delete(all, i, i+1)
			} else {
				space := fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "space"))
				// With an ended context it is granted at once, or given up.
				if release, err := turns.take(ended, flow{tenant: space}, rapid.IntRange(1, 9).Draw(t, "cost")); err == nil {
					all = append(all, held{release})
				}
			}
			sum := 0
			for _, l := range turns.lines {
				sum += l.used
				if l.used > turns.share {
					t.Fatalf("a space has %d of %d", l.used, turns.share)
				}
			}
			if sum != turns.used || sum > turns.total {
				t.Fatalf("%d are used, the sum is %d, of %d", turns.used, sum, turns.total)
			}
		}
		for _, h := range all {
			h.release()
		}
		if len(turns.lines) > 0 || len(turns.waiting) > 0 || turns.used > 0 {
			t.Fatalf("left over: %+v", turns)
		}
	})
}
