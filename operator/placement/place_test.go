// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"pgregory.net/rapid"
)

const gib = 1 << 30

// shards returns ready shards of these names, each with a limit of 8 GiB of which nothing is taken.
func shards(names ...string) (all []Shard) {
	for _, name := range names {
		all = append(all, Shard{Name: name, Ready: true, MemoryLimit: 8 * gib})
	}
	return all
}

// with returns shards of which one is changed.
func with(all []Shard, name string, change func(*Shard)) []Shard {
	all = slices.Clone(all)
	for i := range all {
		if all[i].Name == name {
			change(&all[i])
		}
	}
	return all
}

// on returns n spaces of a tenant on a shard.
func on(shard, tenant string, n int, awake bool) (all []Space) {
	for i := range n {
		all = append(all, Space{Name: fmt.Sprintf("%s-%s-%03d", tenant, shard, i), Tenant: tenant, Shard: shard, Awake: awake})
	}
	return all
}

func TestASpaceIsPlaced(t *testing.T) {
	three := shards("a", "b", "c")
	zones := with(with(three, "a", func(s *Shard) { s.Zone = "1" }), "b", func(s *Shard) { s.Zone = "1" })
	for name, test := range map[string]struct {
		reason string
		shards []Shard
		spaces []Space
		want   string
	}{
		"none":       {"equal shards are taken by name", three, nil, "a"},
		"ready":      {"a shard that isn't ready serves nothing", with(three, "a", func(s *Shard) { s.Ready = false }), nil, "b"},
		"closed":     {"a cordoned shard gets no more", with(three, "a", func(s *Shard) { s.Unschedulable = true }), nil, "b"},
		"draining":   {"a drained shard gets no more", with(three, "a", func(s *Shard) { s.Draining = true }), nil, "b"},
		"full":       {"a full shard gets none, even if the tenant has all others", with(three, "a", func(s *Shard) { s.Memory = 7 * gib }), append(on("b", "acme", 1, true), on("c", "acme", 2, true)...), "b"},
		"spread":     {"a tenant's spaces are spread", three, append(on("a", "acme", 1, true), on("b", "acme", 1, true)...), "c"},
		"soft":       {"the spread yields to memory", with(three, "c", func(s *Shard) { s.Memory = 4 * gib }), append(on("a", "acme", 2, true), on("b", "acme", 1, true)...), "b"},
		"memory":     {"the emptiest is taken", with(with(three, "a", func(s *Shard) { s.Memory = gib }), "b", func(s *Shard) { s.Memory = 2 * gib }), nil, "c"},
		"noise":      {"a little memory more doesn't count", with(three, "a", func(s *Shard) { s.Memory = gib / 4 }), append(on("b", "solar", 1, true), on("c", "solar", 1, true)...), "a"},
		"awake":      {"awake spaces count more than sleeping ones", three, slices.Concat(on("a", "solar", 2, true), on("b", "solar", 1, true), on("c", "solar", 9, false)), "c"},
		"spaces":     {"then all count", three, slices.Concat(on("a", "solar", 3, false), on("b", "solar", 1, false), on("c", "solar", 2, false)), "b"},
		"zone":       {"a tenant's spaces are spread over zones first", zones, append(on("a", "acme", 1, true), on("c", "solar", 5, true)...), "c"},
		"moving":     {"a space that moves counts where it moves", three, []Space{{Name: "x", Tenant: "acme", Shard: "a", MovingTo: "b"}, {Name: "y", Tenant: "acme", Shard: "c"}}, "a"},
		"unreported": {"what a shard hasn't reported yet takes memory too", with(shards("a", "b"), "b", func(s *Shard) { s.Memory, s.Awake = gib, 20 }), append(on("a", "solar", 200, true), on("b", "solar", 20, true)...), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := New(test.shards, test.spaces).Place(Space{Name: "new", Tenant: "acme", Awake: true})
			if err != nil || got != test.want {
				t.Errorf("%s: it is placed on %q (%v), want %q", test.reason, got, err, test.want)
			}
		})
	}
}

func TestASpaceThatFitsNowhereSaysWhy(t *testing.T) {
	all := with(shards("a", "b", "c"), "a", func(s *Shard) { s.Ready = false })
	all = with(all, "b", func(s *Shard) { s.Unschedulable = true })
	all = with(all, "c", func(s *Shard) { s.Memory = 8 * gib })
	all = append(all, Shard{Name: "d", Ready: true, Selects: labels.SelectorFromSet(labels.Set{"stage": "canary"})})
	_, err := New(all, nil).Place(Space{Name: "new", Tenant: "acme"})
	var none *NoShardError
	if !errors.As(err, &none) || *none != (NoShardError{NotReady: 1, Closed: 1, Full: 1, Other: 1}) {
		t.Fatalf("got %v", err)
	}
	for _, remedy := range []string{"check the pods", "berth shard uncordon", "add replicas", "spec.kubernetesVersion"} {
		if !strings.Contains(err.Error(), remedy) {
			t.Errorf("it doesn't say %q: %v", remedy, err)
		}
	}
	if _, err := New(nil, nil).Place(Space{Name: "new"}); err == nil || !strings.Contains(err.Error(), "add replicas") {
		t.Errorf("without shards: %v", err)
	}
}

// A space that moves isn't kept from its zone by itself.
func TestASpaceThatMovesDoesNotCountItself(t *testing.T) {
	all := shards("a", "b", "c", "d")
	for i := range all {
		all[i].Zone = []string{"1", "1", "2", "2"}[i]
	}
	x := Space{Name: "x", Tenant: "acme", Shard: "c"}
	if to, err := New(all, []Space{x, {Name: "y", Tenant: "acme", Shard: "a"}}).Place(x); err != nil || to != "d" {
		t.Errorf("it moves to %s (%v)", to, err)
	}
}

// A burst of new spaces is spread before any shard has reported one of them.
func TestNewSpacesOfASecondAreSpread(t *testing.T) {
	p := New(shards("a", "b", "c"), nil)
	of := map[string]int{}
	for i := range 30 {
		to, err := p.Place(Space{Name: fmt.Sprint(i), Tenant: fmt.Sprint("tenant-", i), Awake: true})
		if err != nil {
			t.Fatal(err)
		}
		of[to]++
	}
	if of["a"] != 10 || of["b"] != 10 || of["c"] != 10 {
		t.Errorf("they are on %v", of)
	}
}

func TestAMoveThatSomebodyAsksForIsChecked(t *testing.T) {
	four := shards("a", "b", "c", "d")
	four = with(four, "b", func(s *Shard) { s.Ready = false })
	four = with(four, "c", func(s *Shard) { s.Draining = true })
	four = with(four, "d", func(s *Shard) { s.Unschedulable = true })
	full := with(shards("a", "b"), "b", func(s *Shard) { s.Memory = 7 * gib })
	for name, test := range map[string]struct {
		shards      []Shard
		space       Space
		to, want, y string
	}{
		"named":      {shards("a", "b"), Space{Shard: "a"}, "b", "b", ""},
		"any":        {shards("a", "b"), Space{Shard: "a"}, "", "b", ""},
		"cordoned":   {four, Space{Shard: "a"}, "d", "d", ""},
		"there":      {four, Space{Shard: "a"}, "a", "", "already"},
		"missing":    {four, Space{Shard: "a"}, "z", "", "there is no shard z"},
		"not ready":  {four, Space{Shard: "a"}, "b", "", "shard b is not ready"},
		"draining":   {four, Space{Shard: "a"}, "c", "", "berth shard uncordon c"},
		"full":       {full, Space{Shard: "a"}, "b", "", "80 % of its memory limit"},
		"source":     {four, Space{Shard: "b"}, "a", "", "its shard b, which has the store, is not ready"},
		"portable":   {four, Space{Shard: "b", Portable: true}, "a", "a", ""},
		"no source":  {four, Space{Shard: "y"}, "a", "", "its shard y, which has the store, doesn't exist"},
		"moving":     {four, Space{Shard: "a", MovingTo: "d"}, "d", "", ErrMoving.Error()},
		"new":        {four, Space{Shard: "a", New: true}, "d", "", ErrNotPlaced.Error()},
		"not placed": {four, Space{}, "d", "", ErrNotPlaced.Error()},
		"no other":   {shards("a"), Space{Shard: "a"}, "", "", "there is no other shard"},
	} {
		t.Run(name, func(t *testing.T) {
			test.space.Name, test.space.Tenant = "x", "acme"
			p := New(test.shards, []Space{test.space})
			got, err := p.Direct(test.space, test.to)
			if got != test.want || (err == nil) != (test.y == "") || err != nil && !strings.Contains(err.Error(), test.y) {
				t.Errorf("it moves to %q (%v), want %q (%s)", got, err, test.want, test.y)
			}
			if spaces, _ := p.Shard(test.want); test.want != "" && spaces != 1 {
				t.Errorf("the plan doesn't count it on %s", test.want)
			}
		})
	}
}

// drawn draws a platform.
func drawn(t *rapid.T) (all []Shard, spaces []Space) {
	count := rapid.IntRange(1, 6).Draw(t, "shards")
	for i := range count {
		all = append(all, Shard{
			Name: fmt.Sprint("s", i), Zone: rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "zone"), Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0,
			Unschedulable: rapid.IntRange(0, 4).Draw(t, "closed") == 0, Draining: rapid.IntRange(0, 4).Draw(t, "draining") == 0,
			MemoryLimit: rapid.SampledFrom([]int64{0, gib, 8 * gib}).Draw(t, "limit"), Memory: rapid.Int64Range(0, gib).Draw(t, "memory"),
			Awake: rapid.IntRange(0, 20).Draw(t, "awake"),
		})
	}
	for i := range rapid.IntRange(0, 60).Draw(t, "spaces") {
		one := Space{Name: fmt.Sprintf("x%02d", i), Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), Awake: rapid.Bool().Draw(t, "awake"), Portable: rapid.Bool().Draw(t, "portable"), New: rapid.IntRange(0, 9).Draw(t, "new") == 0}
		one.Shard = fmt.Sprint("s", rapid.IntRange(0, count).Draw(t, "on")) // the last of which doesn't exist
		if rapid.IntRange(0, 9).Draw(t, "moving") == 0 {
			one.MovingTo = fmt.Sprint("s", rapid.IntRange(0, count).Draw(t, "to"))
		}
		spaces = append(spaces, one)
	}
	return all, spaces
}

func TestPlacesAreOpenAndDoNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, spaces := drawn(t)
		mixed, mixedSpaces := rapid.Permutation(all).Draw(t, "order"), rapid.Permutation(spaces).Draw(t, "order of spaces")
		p, other := New(all, spaces), New(mixed, mixedSpaces)
		for i := range 5 {
			space := Space{Name: fmt.Sprint("new", i), Tenant: "a", Awake: true}
			to, err := p.Place(space)
			if again, err2 := other.Place(space); again != to || (err == nil) != (err2 == nil) {
				t.Fatalf("it is placed on %s (%v), and in another order on %s (%v)", to, err, again, err2)
			}
			at := slices.IndexFunc(all, func(s Shard) bool { return s.Name == to })
			switch {
			case err != nil:
				if at >= 0 {
					t.Fatalf("it is placed on %s, and fails: %v", to, err)
				}
			case !all[at].Ready, all[at].Unschedulable, all[at].Draining, all[at].MemoryLimit > 0 && all[at].Memory*100 >= FullPercent*all[at].MemoryLimit:
				t.Fatalf("it is placed on %+v", all[at])
			}
		}
	})
}

// What a plan counts as it decides is what a plan counts that is made anew.
func TestAPlanCountsWhatItDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all, spaces := drawn(t)
		p := New(all, spaces)
		p.spreadOf("a")
		for i := range 3 {
			_, _ = p.Place(Space{Name: fmt.Sprint("new", i), Tenant: "a", Awake: true})
		}
		p.Moves(now)
		p.FailOver(2)
		fresh := New(all, p.spaces)
		for _, one := range p.shards {
			if other := fresh.byName[one.Name]; one.spaces != other.spaces || one.awake != other.awake || one.leaving != other.leaving || one.coming != other.coming {
				t.Fatalf("it counts %+v, and anew %+v", one, other)
			}
		}
		have, want := p.spreadOf("a"), fresh.spreadOf("a")
		for _, one := range all {
			if have.onShard[one.Name] != want.onShard[one.Name] || have.inZone[one.Zone] != want.inZone[one.Zone] {
				t.Fatalf("it counts %v, and anew %v", have, want)
			}
		}
	})
}

// A new space of the name of a deleted one continues with the store that was retained, wherever that is.
func TestANewSpaceGetsTheShardThatRetainsItsStore(t *testing.T) {
	shards := []Shard{
		{Name: "berth-0", Ready: true},
		{Name: "berth-1", Ready: true, Unschedulable: true, Retained: []string{"solar"}},
	}
	plan := New(shards, nil)
	if to, err := plan.Place(Space{Name: "solar", New: true}); err != nil || to != "berth-1" {
		t.Errorf("the space got %q, %v; want the shard that has its store", to, err)
	}
	if to, err := plan.Place(Space{Name: "lunar", New: true}); err != nil || to != "berth-0" {
		t.Errorf("another space got %q, %v", to, err)
	}
	shards[1].Ready = false
	if to, err := New(shards, nil).Place(Space{Name: "solar", New: true}); err == nil {
		t.Errorf("the space got %q while the shard with its store is away", to)
	}
}

// Spaces that can't move don't keep a drain from moving the others.
func TestADrainLeavesOutWhatCannotMove(t *testing.T) {
	plan := New([]Shard{{Name: "berth-0", Ready: true, Draining: true}, {Name: "berth-1", Ready: true}}, []Space{
		{Name: "a", Shard: "berth-0", Fixed: true}, {Name: "b", Shard: "berth-0", Fixed: true}, {Name: "c", Shard: "berth-0", Awake: true},
	})
	moves := plan.Moves(time.Now())
	if len(moves) != 1 || moves[0].Space != "c" {
		t.Errorf("the drain moves %v, want c only", moves)
	}
}

// T9: a dedicated space gets a shard that may have one more, leaves a shard only if its spaces move, and holds up no others.
func TestDedicatedSpacesGetShardsThatMayHaveThem(t *testing.T) {
	all := []Shard{
		{Name: "berth-0", Ready: true, Draining: true, DedicatedMax: ptr.To[int32](5)}, {Name: "berth-1", Ready: true, DedicatedMax: ptr.To[int32](1)},
		{Name: "berth-2", Ready: true, DedicatedMax: ptr.To[int32](0)}, {Name: "berth-3", Ready: true},
	}
	spaces := []Space{
		{Name: "a", Shard: "berth-0", Dedicated: true}, {Name: "b", Shard: "berth-0", Dedicated: true}, {Name: "c", Shard: "berth-0"},
	}
	moves := New(all, spaces).Moves(now)
	if len(moves) != 2 || moves[0].Space != "a" || moves[0].To != "berth-1" || moves[1].Space != "c" {
		t.Errorf("the drain moves %v, want a to the only shard that may have it, and c", moves)
	}
	all[0].Draining, all[0].Ready, all[0].Dead = false, false, true
	for i := range spaces {
		spaces[i].Portable = true
	}
	if moves := New(all, spaces).FailOver(2); len(moves) != 2 || moves[0].To != "berth-1" || moves[1].Space != "c" {
		t.Errorf("the spaces of the dead shard move %v", moves)
	}
	for name, test := range map[string]struct {
		on, to, says string
		is           bool
	}{
		"a place":          {"berth-2", "berth-1", "", false},
		"none":             {"berth-1", "berth-2", "raise dedicated.max", false},
		"an older version": {"berth-1", "berth-3", "raise dedicated.max", false},
		"on its machine":   {"berth-3", "berth-1", "set spec.isolation to Shared", false},
		"new":              {"", "berth-3", "", true},
	} {
		space := Space{Name: "x", Shard: test.on, Dedicated: true, New: test.is}
		p := New(all[1:], []Space{space})
		var err error
		if test.is {
			_, err = p.Place(space)
		} else {
			_, err = p.Direct(space, test.to)
		}
		if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// T9: until a dedicated space has left a shard, that shard can't have another one in its place.
func TestADedicatedSpaceThatMovesCountsOnBothShards(t *testing.T) {
	all := []Shard{
		{Name: "berth-0", Ready: true, DedicatedMax: ptr.To[int32](5)}, {Name: "berth-1", Ready: true, DedicatedMax: ptr.To[int32](1)},
		{Name: "berth-2", Ready: true, DedicatedMax: ptr.To[int32](1)},
	}
	leaves := Space{Name: "a", Shard: "berth-1", MovingTo: "berth-2", Dedicated: true}
	stays := Space{Name: "b", Shard: "berth-0", Dedicated: true}
	for _, to := range []string{"berth-1", "berth-2"} {
		if _, err := New(all, []Space{leaves, stays}).Direct(stays, to); err == nil {
			t.Errorf("another dedicated space moves to %s", to)
		}
	}
	leaves.Shard, leaves.MovingTo = "berth-2", ""
	if _, err := New(all, []Space{leaves, stays}).Direct(stays, "berth-1"); err != nil {
		t.Errorf("after the move: %v", err)
	}
}
