// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

func TestADrainingShardIsEmptied(t *testing.T) {
	all := with(shards("a", "b", "c"), "a", func(s *Shard) { s.Draining = true })
	spaces := append(on("a", "acme", 2, true), on("a", "solar", 2, false)...)
	spaces[0].Moved = now // which doesn't keep it there
	spaces = append(spaces, Space{Name: "new", Tenant: "solar", Shard: "a", New: true})
	got := New(all, spaces).Moves(now)
	want := []Move{{"solar-a-000", "a", "b", Drain}, {"solar-a-001", "a", "c", Drain}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("sleeping spaces leave first, two at once: ", diff)
	}
	for _, shard := range []string{"b", "c"} { // both have arrived
		spaces[slices.IndexFunc(spaces, func(s Space) bool { return s.Tenant == "solar" && s.Shard == "a" })].Shard = shard
	}
	got = New(all, spaces).Moves(now)
	if diff := cmp.Diff([]Move{{"acme-a-000", "a", "b", Drain}, {"acme-a-001", "a", "c", Drain}}, got); diff != "" {
		t.Error("then the awake ones: ", diff)
	}
}

func TestMovesAreLimited(t *testing.T) {
	all := shards("a", "b", "c", "d", "e")
	for _, name := range []string{"a", "b", "c"} {
		all = with(all, name, func(s *Shard) { s.Draining = true })
	}
	spaces := slices.Concat(on("a", "acme", 5, false), on("b", "acme", 5, false), on("c", "acme", 5, false))
	from := map[string]int{}
	for _, move := range New(all, spaces).Moves(now) {
		from[move.From]++
	}
	if from["a"] > 2 || from["b"] > 2 || from["c"] > 2 || from["a"]+from["b"]+from["c"] != 4 {
		t.Errorf("as many begin to leave: %v", from)
	}
	spaces[0].MovingTo, spaces[5].MovingTo, spaces[10].MovingTo = "d", "d", "d"
	if moves := New(all, spaces).Moves(now); len(moves) != 1 {
		t.Errorf("with three on their way, these begin to leave: %v", moves)
	}
	// A move that can't end holds up nothing.
	spaces[0].MovingTo, spaces[5].MovingTo, spaces[10].MovingTo = "gone", "gone", "gone"
	if moves := New(all, spaces).Moves(now); len(moves) != 4 {
		t.Errorf("with three stuck, these begin to leave: %v", moves)
	}
	spaces[0].MovingTo, spaces[5].MovingTo, spaces[10].MovingTo = "", "", ""
	all = append(all, Shard{Name: "f"})
	for i := range MaxMoving {
		spaces = append(spaces, Space{Name: fmt.Sprint("of-f-", i), Shard: "f", MovingTo: "d"})
	}
	if moves := New(all, spaces).Moves(now); len(moves) != 4 {
		t.Errorf("with four that wait for their shard, these begin to leave: %v", moves)
	}
}

func TestADrainWaitsForAShard(t *testing.T) {
	for name, all := range map[string][]Shard{
		"no other":   with(shards("a"), "a", func(s *Shard) { s.Draining = true }),
		"all drain":  with(with(shards("a", "b"), "a", func(s *Shard) { s.Draining = true }), "b", func(s *Shard) { s.Draining = true }),
		"not ready":  with(shards("a", "b"), "a", func(s *Shard) { s.Draining, s.Ready = true, false }),
		"full other": with(with(shards("a", "b"), "a", func(s *Shard) { s.Draining = true }), "b", func(s *Shard) { s.Memory = 7 * gib }),
	} {
		if moves := New(all, on("a", "acme", 3, true)).Moves(now); len(moves) > 0 {
			t.Errorf("%s: %v", name, moves)
		}
	}
}

func TestShardsAreBalanced(t *testing.T) {
	hot := with(with(shards("a", "b"), "a", func(s *Shard) { s.Memory, s.Awake = 4*gib, 100 }), "b", func(s *Shard) { s.Memory, s.Awake = gib, 20 })
	spaces := slices.Concat(on("a", "acme", 100, true), on("b", "solar", 20, true), on("a", "asleep", 5, false), on("b", "dozing", 80, false))
	if diff := cmp.Diff([]Move{{"acme-a-000", "a", "b", Balance}}, New(hot, spaces).Moves(now)); diff != "" {
		t.Error("an awake space leaves a shard with far more memory, and one at a time: ", diff)
	}
	for name, test := range map[string]struct {
		shards []Shard
		spaces []Space
		moves  int
	}{
		"rests":   {with(hot, "a", func(s *Shard) { s.Balanced = now.Add(-BalanceInterval / 2) }), spaces, 0},
		"rested":  {with(hot, "a", func(s *Shard) { s.Balanced = now.Add(-BalanceInterval) }), spaces, 1},
		"closed":  {with(hot, "b", func(s *Shard) { s.Unschedulable = true }), spaces, 0},
		"leaves":  {with(hot, "a", func(s *Shard) { s.Unschedulable = true }), spaces, 1},
		"close":   {with(hot, "b", func(s *Shard) { s.Memory = 3 * gib }), spaces, 0},
		"heavy":   {with(hot, "a", func(s *Shard) { s.Awake = 1 }), slices.Concat(on("a", "acme", 1, true), on("b", "solar", 1, true)), 0}, // the other one would be far off then
		"kept":    {hot, slices.Concat(on("a", "acme", 20, true), on("b", "solar", 100, true)), 0},                                         // its memory isn't that of its spaces
		"count":   {shards("a", "b"), on("a", "acme", 8, false), 1},
		"few":     {shards("a", "b"), on("a", "acme", 4, false), 0},
		"awake":   {shards("a", "b"), on("a", "acme", 8, true), 0}, // takes no memory to speak of
		"part":    {shards("a", "b"), append(on("a", "acme", 110, false), on("b", "acme", 90, false)...), 0},
		"lost":    {with(shards("a", "b"), "a", func(s *Shard) { s.Ready = false }), on("a", "acme", 8, false), 0},
		"drained": {with(shards("a", "b"), "b", func(s *Shard) { s.Draining = true }), on("a", "acme", 8, false), 0},
	} {
		if moves := New(test.shards, test.spaces).Moves(now); len(moves) != test.moves {
			t.Errorf("%s: it begins %v, want %d", name, moves, test.moves)
		}
	}
	recent := on("a", "acme", 8, false)
	for i := range recent {
		recent[i].Moved = now.Add(-MoveInterval + time.Second)
	}
	recent[3].Moved = now.Add(-MoveInterval)
	if diff := cmp.Diff([]Move{{"acme-a-003", "a", "b", Balance}}, New(shards("a", "b"), recent).Moves(now)); diff != "" {
		t.Error("a space that has moved stays for a while: ", diff)
	}
}

// A space with a process of its own takes no memory of its shard. Nevertheless, it doesn't move as if it slept.
func TestADedicatedSpaceThatIsUsedIsDisturbedLast(t *testing.T) {
	all := shards("a", "b")
	for i := range all {
		all[i].DedicatedMax = ptr.To[int32](100)
	}
	spaces := on("a", "acme", 8, false)
	for i := range spaces[:7] {
		spaces[i].Dedicated, spaces[i].Busy = true, true
	}
	if diff := cmp.Diff([]Move{{"acme-a-007", "a", "b", Balance}}, New(all, spaces).Moves(now)); diff != "" {
		t.Error("the sleeping space moves for balance: ", diff)
	}
	if moves := New(all, spaces[:7]).Moves(now); len(moves) > 0 {
		t.Errorf("for balance, %v are moved", moves)
	}
	three := append(slices.Clone(all), Shard{Name: "c", Ready: true, MemoryLimit: 8 * gib, DedicatedMax: ptr.To[int32](100)})
	if diff := cmp.Diff([]Move{{"acme-b-000", "b", "c", Balance}}, New(three, slices.Concat(spaces[:7], on("b", "acme", 6, false))).Moves(now)); diff != "" {
		t.Error("the shard with the next most spaces is balanced: ", diff)
	}
	draining := with(all, "a", func(s *Shard) { s.Draining = true })
	if diff := cmp.Diff([]Move{{"acme-a-007", "a", "b", Drain}, {"acme-a-000", "a", "b", Drain}}, New(draining, spaces).Moves(now)); diff != "" {
		t.Error("the sleeping space leaves first: ", diff)
	}
	dead := with(all, "a", func(s *Shard) { s.Ready, s.Dead = false, true })
	for i := range spaces {
		spaces[i].Portable = true
	}
	spaces[0].Busy = false
	if moves := New(dead, spaces).FailOver(8); len(moves) != 8 || moves[6].Space != "acme-a-000" || moves[7].Space != "acme-a-007" {
		t.Errorf("those that sleep aren't served last: %v", moves)
	}
}

func TestPortableSpacesOfADeadShardAreServedElsewhere(t *testing.T) {
	all := with(with(shards("a", "b", "c"), "a", func(s *Shard) { s.Ready, s.Dead = false, true }), "b", func(s *Shard) { s.Ready, s.Lost = false, true })
	spaces := slices.Concat(on("a", "acme", 2, false), on("a", "solar", 2, true), on("b", "acme", 1, true), on("a", "sqlite", 1, true))
	for i := range spaces[:5] {
		spaces[i].Portable = true
	}
	p := New(all, spaces)
	want := []Move{{"solar-a-000", "a", "c", Failover}, {"solar-a-001", "a", "c", Failover}, {"acme-a-000", "a", "c", Failover}}
	if diff := cmp.Diff(want, p.FailOver(3)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Move{{"acme-a-001", "a", "c", Failover}}, p.FailOver(9)); diff != "" {
		t.Error(diff)
	}
}

// A space that moves off a shard that dies goes to the shard to which it moves, if that is ready.
func TestASpaceThatMovesOffADeadShardArrives(t *testing.T) {
	all := with(with(shards("a", "b", "c", "d"), "a", func(s *Shard) { s.Ready, s.Dead = false, true }), "b", func(s *Shard) { s.Ready = false })
	p := New(all, []Space{{Name: "x", Shard: "a", MovingTo: "d", Portable: true}, {Name: "y", Shard: "a", MovingTo: "b", Portable: true}, {Name: "z", Shard: "a", MovingTo: "c"}})
	if diff := cmp.Diff([]Move{{"x", "a", "d", Failover}, {"y", "a", "c", Failover}}, p.FailOver(9)); diff != "" {
		t.Error(diff)
	}
}

// Sleeping spaces are not all placed on the shard with the fewest awake spaces.
func TestSleepingSpacesOfADeadShardAreSpread(t *testing.T) {
	all := with(shards("a", "b", "c"), "a", func(s *Shard) { s.Ready, s.Dead = false, true })
	spaces := on("b", "acme", 1, true)
	for i := range 10 {
		spaces = append(spaces, Space{Name: fmt.Sprint("asleep-", i), Tenant: fmt.Sprint("tenant-", i), Shard: "a", Portable: true})
	}
	p := New(all, spaces)
	if moves := p.FailOver(10); len(moves) != 10 {
		t.Fatalf("only these move: %v", moves)
	}
	if spaces, _ := p.Shard("b"); spaces < 5 || spaces > 6 {
		t.Errorf("of eleven spaces on two shards, one has %d", spaces)
	}
}

func TestAMoveToAShardThatIsLostIsStuck(t *testing.T) {
	all := with(with(shards("a", "b", "c"), "b", func(s *Shard) { s.Ready, s.Lost = false, true }), "c", func(s *Shard) { s.Ready = false })
	spaces := []Space{{Name: "x", Shard: "a", MovingTo: "b"}, {Name: "y", Shard: "a", MovingTo: "c"}, {Name: "v", Shard: "a", MovingTo: "gone"}, {Name: "z", Shard: "a"}}
	if diff := cmp.Diff([]string{"v", "x"}, New(all, spaces).Stuck()); diff != "" {
		t.Error(diff)
	}
}

// Moves end: nothing goes to and fro, no space moves twice within the interval unless it leaves a drained shard, and drained
// shards are empty at the end, if the spaces fit on another one.
func TestMovesEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, spaces := drawn(t)
		for i := range spaces {
			spaces[i].MovingTo, spaces[i].New = "", false
		}
		base := make([]int64, len(all)) // of each process without spaces
		for i := range all {
			base[i] = all[i].Memory
		}
		at, rounds := now, 0
		for idle := time.Duration(0); idle < MoveInterval+BalanceInterval; at = at.Add(30 * time.Second) {
			for i := range all { // reports
				_, all[i].Awake = New(all, spaces).Shard(all[i].Name)
				all[i].Memory = base[i] + int64(all[i].Awake)*AwakeBytes
			}
			moves := New(all, spaces).Moves(at)
			if rounds++; rounds > 500 {
				t.Fatalf("moves after %d rounds: %v", rounds, moves)
			}
			if idle += 30 * time.Second; len(moves) > 0 {
				idle = 0
			}
			arrive(t, all, spaces, moves, at)
		}
		open := slices.ContainsFunc(all, func(s Shard) bool {
			return s.Ready && !s.Draining && !s.Unschedulable && (s.MemoryLimit == 0 || (s.Memory+120*AwakeBytes)*100 < FullPercent*s.MemoryLimit)
		})
		for _, one := range all {
			if spaces, _ := New(all, spaces).Shard(one.Name); open && one.Draining && one.Ready && spaces > 0 {
				t.Fatalf("%d spaces are left on %s", spaces, one.Name)
			}
		}
	})
}

// arrive checks moves, and moves the spaces at once.
func arrive(t *rapid.T, all []Shard, spaces []Space, moves []Move, at time.Time) {
	if len(moves) > MaxMoving {
		t.Fatalf("%d at once", len(moves))
	}
	leaving := map[string]int{}
	for _, move := range moves {
		from := slices.IndexFunc(all, func(s Shard) bool { return s.Name == move.From })
		to := slices.IndexFunc(all, func(s Shard) bool { return s.Name == move.To })
		space := &spaces[slices.IndexFunc(spaces, func(s Space) bool { return s.Name == move.Space })]
		if leaving[move.From]++; leaving[move.From] > MaxLeaving {
			t.Fatalf("%d leave %s", leaving[move.From], move.From)
		}
		if space.New || space.Shard != move.From || move.From == move.To || !all[from].Ready || !all[to].Ready || all[to].Draining || all[to].Unschedulable {
			t.Fatalf("%v of %+v", move, *space)
		}
		if move.Reason == Balance {
			if at.Sub(space.Moved) < MoveInterval {
				t.Fatalf("%v again, after it moved %s ago", move, at.Sub(space.Moved))
			}
			all[from].Balanced, all[to].Balanced = at, at
		}
		space.Shard, space.Moved = move.To, at
	}
}

func BenchmarkARoundOf100000Spaces(b *testing.B) {
	var all []Shard
	var spaces []Space
	for i := range 100 {
		all = append(all, Shard{Name: fmt.Sprint("berth-", i), Zone: fmt.Sprint(i % 3), Ready: true, MemoryLimit: 8 * gib})
		spaces = append(spaces, on(all[i].Name, fmt.Sprint("tenant-", i%30), 1000, i%9 == 0)...)
	}
	for b.Loop() {
		p := New(all, spaces)
		p.Moves(now)
		if _, err := p.Place(Space{Name: "new", Tenant: "tenant-1", Awake: true}); err != nil {
			b.Fatal(err)
		}
	}
}
