// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
)

// waiting is how many wait for a slot.
func (f *Slots) waiting() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, waits := range f.waits {
		n += len(waits)
	}
	return n
}

// S8: with a thousand requests of one space before it, another space's are served in turn: of the slots that become
// free, each of the spaces gets its share.
func TestHostileSpaceWithManyRequestsGetsItsShareAlone(t *testing.T) {
	const slots = 4
	f := newSlots(slots, slots)
	for range slots {
		if err := f.take(t.Context(), "flood"); err != nil {
			t.Fatal(err)
		}
	}
	got := make(chan string)
	var all sync.WaitGroup
	queue := func(space string, n int) {
		t.Helper()
		before := f.waiting()
		for range n {
			all.Go(func() {
				if f.take(t.Context(), space) == nil {
					got <- space
				}
			})
		}
		for f.waiting() < before+n {
			runtime.Gosched()
		}
	}
	queue("flood", 1000)
	queue("quiet", 3)
	queue("other", 5)
	served, busy := map[string]int{}, []string{}
	for range slots { // those it began with
		f.give("flood")
		next := <-got
		served[next]++
		busy = append(busy, next)
	}
	for range 9 - slots {
		f.give(busy[0])
		next := <-got
		served[next]++
		busy = append(busy[1:], next)
	}
	for _, space := range []string{"flood", "quiet", "other"} {
		if served[space] != 3 {
			t.Errorf("of nine slots %s got %d, want 3", space, served[space])
		}
	}
	for range 1008 - 9 {
		f.give(busy[0])
		busy = append(busy[1:], <-got)
	}
	all.Wait()
	if f.waiting() != 0 || len(f.turns) != 0 || len(f.waits) != 0 || f.free != 0 {
		t.Errorf("%d wait, %v have turns, %d slots are free", f.waiting(), f.turns, f.free)
	}
}

// S8: a space whose requests the host does not answer leaves slots to the others.
func TestHostileSpaceHoldsNotAllSlots(t *testing.T) {
	f := newSlots(4, 2)
	for range 2 {
		if err := f.take(t.Context(), "hangs"); err != nil {
			t.Fatal(err)
		}
	}
	third := make(chan error)
	go func() { third <- f.take(t.Context(), "hangs") }()
	for f.waiting() < 1 {
		runtime.Gosched()
	}
	for range 3 {
		if err := f.take(t.Context(), "quiet"); err != nil {
			t.Fatal(err)
		}
		f.give("quiet")
	}
	if f.waiting() != 1 {
		t.Error("it got a slot more than it may have")
	}
	f.give("hangs")
	if err := <-third; err != nil {
		t.Error(err)
	}
}

func TestARequestThatEndsLeavesItsSlot(t *testing.T) {
	f := newSlots(1, 1)
	if err := f.take(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.take(ctx, "b") }()
	for f.waiting() < 1 {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	f.give("a")
	if f.free != 1 || len(f.turns) != 0 || len(f.waits) != 0 || len(f.held) != 0 {
		t.Errorf("%d are free, %v have turns", f.free, f.turns)
	}
}
