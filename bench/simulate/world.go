// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/berth-dev/berth/operator/placement"
)

const (
	mib = 1 << 20
	// step is the time between two looks at the platform.
	step = 10 * time.Minute
	// limit is the memory limit of a shard, and base what a process takes without spaces: those of the chart.
	limit, base = 7 << 30, 256 * mib
	// stay is how long a space is awake, on average.
	stay = 45 * time.Minute
)

// config is what is simulated.
type config struct {
	Shards, Zones, Spaces, Tenants, Days int
	// Portable is the part of the spaces whose stores are not on their shards.
	Portable float64
	// CreatedPerHour is how many spaces are created in an hour, and as many are deleted.
	CreatedPerHour     int
	FailoversPerSecond int
	Seed               uint64
}

func usual() config {
	return config{Shards: 100, Zones: 3, Spaces: 100_000, Tenants: 5000, Days: 3, Portable: 0.3, CreatedPerHour: 300, FailoversPerSecond: 50, Seed: 1}
}

// world is a platform.
type world struct {
	config
	rand   *rand.Rand
	start  time.Time
	shards []placement.Shard
	at     map[string]int // the positions of shards
	spaces []placement.Space
	made   []traits
	on     []int          // the positions of the shards of spaces
	index  map[string]int // the positions of spaces
	sizes  []float64      // of tenants, added up
	named  int
}

// traits are what placement doesn't know about a space.
type traits struct {
	memory int64
	// always says that the space doesn't sleep, and wakes is how often it wakes in an hour at the busiest time.
	always bool
	wakes  float64
	// offset is the time zone of the tenant, in hours.
	offset float64
	// hashed is the shard that the hash of the name chooses, to compare with.
	hashed int
}

func newWorld(c config) *world {
	w := &world{config: c, rand: rand.New(rand.NewPCG(c.Seed, c.Seed)), start: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), at: map[string]int{}, index: map[string]int{}}
	for i := range c.Shards {
		name := fmt.Sprintf("berth-%d", i)
		w.at[name] = i
		w.shards = append(w.shards, placement.Shard{Name: name, Zone: fmt.Sprint("zone-", i%c.Zones), Ready: true, Memory: base, MemoryLimit: limit})
	}
	sum := 0.
	for i := range c.Tenants { // few tenants have many spaces
		sum += 1 / math.Pow(float64(i+1), 0.8)
		w.sizes = append(w.sizes, sum)
	}
	w.fill()
	return w
}

// fill creates all spaces, of which most sleep at once, and has shards report after each hundredth.
func (w *world) fill() {
	for len(w.spaces) < w.Spaces {
		plan := w.plan()
		for range min(max(1, w.Spaces/100), w.Spaces-len(w.spaces)) {
			space, made := w.create()
			space.Shard = mustPlace(plan, space)
			space.New, space.Awake = false, made.always
			w.index[space.Name] = len(w.spaces)
			w.spaces, w.made, w.on = append(w.spaces, space), append(w.made, made), append(w.on, w.at[space.Shard])
		}
		w.report()
	}
}

func mustPlace(plan *placement.Plan, space placement.Space) string {
	to, err := plan.Place(space)
	if err != nil {
		panic(fmt.Sprintf("place %s: %v", space.Name, err)) // the platform is too small for the simulation
	}
	return to
}

// create makes up a space.
func (w *world) create() (placement.Space, traits) {
	w.named++
	tenant := sort.SearchFloat64s(w.sizes, w.rand.Float64()*w.sizes[len(w.sizes)-1])
	space := placement.Space{Name: fmt.Sprintf("space-%06d", w.named), Tenant: fmt.Sprint("tenant-", tenant), Awake: true, New: true, Portable: w.rand.Float64() < w.Portable}
	made := traits{memory: int64(min(256, max(6, 12*math.Exp(0.7*w.rand.NormFloat64()))) * mib)}
	switch kind := w.rand.Float64(); {
	case kind < 0.02:
		made.always = true
	case kind < 0.62: // of people at work
		made.wakes = 0.6
	default:
		made.wakes = 0.02
	}
	switch region := tenant % 10; { // most tenants are in one region
	case region >= 9:
		made.offset = 9
	case region >= 7:
		made.offset = -7
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(space.Name))
	made.hashed = int(hash.Sum32() % uint32(w.Shards))
	return space, made
}

// pass lets spaces wake and sleep for a step.
func (w *world) pass(now time.Time) {
	hour := now.Sub(w.start).Hours()
	for i := range w.spaces {
		space, made := &w.spaces[i], &w.made[i]
		switch {
		case made.always:
			space.Awake = w.serves(i)
		case !w.serves(i):
			space.Awake = false
		case space.Awake:
			space.Awake = w.rand.Float64() >= step.Hours()/stay.Hours()
		default:
			space.Awake = w.rand.Float64() < made.wakes*busy(hour+made.offset)*step.Hours()
		}
	}
}

// busy is how much is done at an hour, of the most.
func busy(hour float64) float64 {
	from := math.Mod(hour+24, 24) - 13
	return max(0.1, math.Exp(-from*from/(2*3.5*3.5)))
}

// serves reports whether a space can be reached.
func (w *world) serves(i int) bool { return w.shards[w.on[i]].Ready }

// churn deletes spaces, and creates as many, those of an hour at once.
func (w *world) churn(now time.Time) {
	plan := w.plan()
	for range w.CreatedPerHour {
		i := w.rand.IntN(len(w.spaces))
		space, made := w.create()
		space.Shard, space.Moved = mustPlace(plan, space), now.Add(-placement.MoveInterval)
		space.New = false
		delete(w.index, w.spaces[i].Name)
		w.index[space.Name], w.spaces[i], w.made[i], w.on[i] = i, space, made, w.at[space.Shard]
	}
}

// report has all shards report their memory.
func (w *world) report() {
	for i := range w.shards {
		w.shards[i].Memory, w.shards[i].Awake = base, 0
	}
	for i := range w.spaces {
		if on := &w.shards[w.on[i]]; w.spaces[i].Awake {
			on.Awake++
			on.Memory += w.made[i].memory
		}
	}
}

func (w *world) plan() *placement.Plan { return placement.New(w.shards, w.spaces) }

// arrive moves spaces.
func (w *world) arrive(moves []placement.Move, now time.Time) {
	for _, move := range moves {
		i, from, to := w.index[move.Space], w.at[move.From], w.at[move.To]
		w.spaces[i].Shard, w.spaces[i].Moved, w.on[i] = move.To, now, to
		if move.Reason == placement.Balance {
			w.shards[from].Balanced, w.shards[to].Balanced = now, now
		}
	}
}
