// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

// pooled are shards of two minor versions, one of which is a canary.
func pooled() []Shard {
	all := shards("a", "b", "canary", "old")
	for i := range all {
		all[i].Minor = 37
	}
	all = with(all, "canary", func(s *Shard) { s.Selects = labels.SelectorFromSet(labels.Set{"stage": "canary"}) })
	return with(all, "old", func(s *Shard) { s.Minor, s.Selects = 36, labels.SelectorFromSet(labels.Set{"version": "1.36"}) })
}

func TestASpaceGetsAShardOfItsPool(t *testing.T) {
	for name, test := range map[string]struct {
		space Space
		want  []string // nil for none
	}{
		"without labels":                   {Space{}, []string{"a", "b"}},
		"selected":                         {Space{Labels: labels.Set{"stage": "canary"}}, []string{"canary"}},
		"of a version":                     {Space{Minor: 36, Labels: labels.Set{"version": "1.36"}}, []string{"old"}},
		"of a version that nobody selects": {Space{Minor: 37}, []string{"a", "b"}},
		"of a version that nobody serves":  {Space{Minor: 35}, nil},
		"selected, of another version":     {Space{Minor: 36, Labels: labels.Set{"stage": "canary"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			test.space.Name = "new"
			to, err := New(pooled(), nil).Place(test.space)
			if (err == nil) != (test.want != nil) || err == nil && !slices.Contains(test.want, to) {
				t.Errorf("it is placed on %q (%v), want one of %v", to, err, test.want)
			}
		})
	}
}

func TestASpaceMovesToItsPool(t *testing.T) {
	spaces := []Space{
		{Name: "stays", Shard: "a"},
		{Name: "canary", Shard: "a", Labels: labels.Set{"stage": "canary"}, Awake: true},
		{Name: "back", Shard: "canary"},
		{Name: "older", Shard: "b", Minor: 36, Labels: labels.Set{"version": "1.36"}},
		{Name: "dedicated", Shard: "b", Fixed: true, Labels: labels.Set{"stage": "canary"}},
		{Name: "nowhere", Shard: "b", Minor: 35},
	}
	got := New(pooled(), spaces).Moves(now)
	slices.SortFunc(got, func(a, b Move) int { return strings.Compare(a.Space, b.Space) })
	if len(got) == 3 && got[0].To == "b" {
		got[0].To = "a" // either is right
	}
	if diff := cmp.Diff([]Move{{"back", "canary", "a", Pool}, {"canary", "a", "canary", Pool}, {"older", "b", "old", Pool}}, got); diff != "" {
		t.Error(diff)
	}
}

// A space doesn't move by two minor versions at once.
func TestASpaceMovesByOneVersionAtATime(t *testing.T) {
	all := shards("a", "b", "c")
	for i := range all {
		all[i].Minor = 37 - uint(i) //nolint:gosec // small
	}
	space := Space{Name: "x", Shard: "a", Minor: 35}
	if moves := New(all, []Space{space}).Moves(now); len(moves) != 0 {
		t.Errorf("it moves: %v", moves)
	}
	for to, want := range map[string]string{"b": "spec.kubernetesVersion", "c": "one minor version at a time"} {
		if _, err := New(all, []Space{space}).Direct(space, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("to %s: %v", to, err)
		}
	}
	space.Minor = 36
	if moves := New(all, []Space{space}).Moves(now); len(moves) != 1 || moves[0].To != "b" {
		t.Errorf("by one version, it moves: %v", moves)
	}
}

// A space that no shard can take holds up none that another pool has a place for, neither when its shard fails nor when that is drained.
func TestASpaceWithoutAPlaceHoldsUpNoOther(t *testing.T) {
	spaces := []Space{{Name: "a", Shard: "canary", Minor: 37, Labels: labels.Set{"stage": "canary"}, Portable: true}, {Name: "b", Shard: "canary", Portable: true}}
	dead := with(pooled(), "canary", func(s *Shard) { s.Ready, s.Dead = false, true })
	if moves := New(dead, spaces).FailOver(9); len(moves) != 1 || moves[0].Space != "b" {
		t.Errorf("when their shard fails, these get another one: %v", moves)
	}
	draining := with(with(shards("old", "new"), "old", func(s *Shard) { s.Draining, s.Minor = true, 36 }), "new", func(s *Shard) { s.Minor = 37 })
	spaces = []Space{{Name: "a", Shard: "old", Minor: 36}, {Name: "b", Shard: "old"}}
	if moves := New(draining, spaces).Moves(now); len(moves) != 1 || moves[0].Space != "b" {
		t.Errorf("when their shard is drained, these leave it: %v", moves)
	}
}

// Whatever pools there are, spaces end on shards that they are for, and then rest.
func TestPoolsComeToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := pooled()
		var spaces []Space
		for i := range rapid.IntRange(1, 30).Draw(t, "spaces") {
			space := Space{Name: fmt.Sprint("s", i), Shard: rapid.SampledFrom([]string{"a", "b", "canary", "old"}).Draw(t, "shard"), Awake: rapid.Bool().Draw(t, "awake")}
			space.Labels = rapid.SampledFrom([]labels.Set{nil, {"stage": "canary"}, {"version": "1.36"}}).Draw(t, "labels")
			spaces = append(spaces, space)
		}
		for round := range 100 {
			moves := New(all, spaces).Moves(now)
			for _, move := range moves {
				at := slices.IndexFunc(spaces, func(s Space) bool { return s.Name == move.Space })
				spaces[at].Shard, spaces[at].Moved = move.To, now
			}
			if len(moves) > 0 {
				if round == 99 {
					t.Fatalf("they still move: %v", moves)
				}
				continue
			}
			p := New(all, spaces)
			for i := range spaces {
				if err := p.unfit(&spaces[i], p.byName[spaces[i].Shard]); err != nil {
					t.Errorf("%s rests on %s: %v", spaces[i].Name, spaces[i].Shard, err)
				}
			}
			return
		}
	})
}
