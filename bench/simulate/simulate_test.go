// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"testing"
)

// The simulator shows what placement promises: tenants are spread over zones, no shard is full, moves end, and after the loss of a
// zone, all portable spaces are served by the others.
func TestPlacementInASmallSimulation(t *testing.T) {
	c := config{Shards: 12, Zones: 3, Spaces: 6000, Tenants: 300, Days: 2, Portable: 0.3, CreatedPerHour: 20, FailoversPerSecond: 50, Seed: 1}
	r := run(c)
	if err := r.table(io.Discard); err != nil {
		t.Fatal(err)
	}
	if r.Tenants < 200 || r.OneZone > 0 {
		t.Errorf("of %d tenants, %d are in one zone", r.Tenants, r.OneZone)
	}
	moves, calm := 0, 0
	for _, one := range r.Series {
		if one.MaxMemory >= 80 {
			t.Errorf("at hour %.1f, a shard takes %.0f %% of its memory", one.Hour, one.MaxMemory)
		}
		if one.Hour >= 24 && !one.lost && !one.after {
			calm++
			moves += one.Moves
			if one.MaxAwake > 1.5*one.Awake || one.MaxSpaces > 1.3 {
				t.Errorf("at hour %.1f, a shard has %.0f awake spaces, and the mean is %.0f; one has %.2f times the mean number of spaces", one.Hour, one.MaxAwake, one.Awake, one.MaxSpaces)
			}
		}
	}
	if calm == 0 || moves > 12*calm/6 {
		t.Errorf("%d moves in %d steps", moves, calm)
	}
	if l := r.Loss; l.Shards != 4 || l.Portable == 0 || l.Unplaced > 0 || l.Seconds > detection.Seconds()+float64(l.Portable)/50+1 || l.AwakeSeconds >= l.Seconds {
		t.Errorf("the loss is %+v", l)
	}
}

// Equal seeds have equal results.
func TestASimulationIsRepeatable(t *testing.T) {
	c := config{Shards: 6, Zones: 3, Spaces: 300, Tenants: 30, Days: 1, Portable: 0.3, CreatedPerHour: 5, FailoversPerSecond: 5, Seed: 7}
	one, err := json.Marshal(run(c))
	if err != nil {
		t.Fatal(err)
	}
	other, err := json.Marshal(run(c))
	if err != nil || string(one) != string(other) {
		t.Error("they differ")
	}
}
