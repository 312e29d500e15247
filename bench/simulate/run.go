// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/berth-dev/berth/operator/placement"
)

const (
	// rounds is how often in a step the operator decides about moves, as long as there are some. A real one decides more often: as soon as
	// a space has arrived.
	rounds = 3
	// detection is how long it takes until a lost shard is known to be lost.
	detection = 5 * time.Second
	// lossHour is when a zone is lost on the last day, and lossHours for how long.
	lossHour, lossHours = 13, 2
)

// point is the platform after a step.
type point struct {
	// Hour is that since the start.
	Hour float64 `json:"hour"`
	// Awake is the mean number of awake spaces of a ready shard, and MaxAwake the largest.
	Awake    float64 `json:"awake"`
	MaxAwake float64 `json:"maxAwake"`
	// Memory is the mean part of its memory limit that a ready shard takes, in percent, MaxMemory the largest, and MaxHashed the largest
	// if the hashes of names chose the shards.
	Memory    float64 `json:"memory"`
	MaxMemory float64 `json:"maxMemory"`
	MaxHashed float64 `json:"maxHashed"`
	// MaxSpaces is the largest number of spaces on a shard, as a multiple of the mean.
	MaxSpaces float64 `json:"maxSpaces"`
	// Moves is the number of moves in the step.
	Moves int `json:"moves"`
	// Down is the number of spaces that can't be reached.
	Down int `json:"down"`
	// lost says that a zone is lost, and after that this was the case.
	lost, after bool
}

// loss is the loss of a zone.
type loss struct {
	Shards int `json:"shards"`
	// Spaces is the number of spaces on them, Awake that of awake ones, and Portable that of those that others can serve.
	Spaces   int `json:"spaces"`
	Awake    int `json:"awake"`
	Portable int `json:"portable"`
	// AwakeSeconds is the time until the awake portable spaces are served again, and Seconds until all of them are.
	AwakeSeconds float64 `json:"awakeSeconds"`
	Seconds      float64 `json:"seconds"`
	// Unplaced is the number of portable spaces for which there was no memory.
	Unplaced int `json:"unplaced"`
	// BalancedHours is the time from the return of the zone until its shards have half of the mean memory of the others.
	BalancedHours float64 `json:"balancedHours"`
	ended         time.Time
}

type result struct {
	Config config  `json:"config"`
	Series []point `json:"series"`
	Loss   loss    `json:"loss"`
	// Tenants is the number of tenants with at least as many spaces as there are zones, and OneZone that of those with all of them in one
	// zone, and HashedOneZone if the hashes of names chose the shards.
	Tenants       int `json:"tenants"`
	OneZone       int `json:"oneZone"`
	HashedOneZone int `json:"hashedOneZone"`
}

// run simulates a platform.
func run(c config) *result {
	w, r := newWorld(c), &result{Config: c}
	lost := w.start.Add(time.Duration(c.Days-1)*24*time.Hour + lossHour*time.Hour)
	end := w.start.Add(time.Duration(c.Days) * 24 * time.Hour)
	for now := w.start; now.Before(end); now = now.Add(step) {
		switch {
		case now.Equal(lost):
			r.Tenants, r.OneZone, r.HashedOneZone = w.spread()
			r.Loss = w.lose(now)
		case now.Equal(lost.Add(lossHours * time.Hour)):
			for i := range w.shards {
				w.shards[i].Ready, w.shards[i].Lost, w.shards[i].Dead = true, false, false
			}
			r.Loss.ended = now
		}
		w.pass(now)
		w.report()
		if now.Minute() == 0 {
			w.churn(now)
		}
		moves := 0
		for round := range rounds {
			w.report()
			at := now.Add(time.Duration(round) * step / rounds)
			some := w.plan().Moves(at)
			if len(some) == 0 {
				break
			}
			w.arrive(some, at)
			moves += len(some)
		}
		w.report()
		one := w.point(now, moves)
		one.lost, one.after = !now.Before(lost) && r.Loss.ended.IsZero(), !r.Loss.ended.IsZero()
		r.Series = append(r.Series, one)
		if one.after && r.Loss.BalancedHours == 0 && w.zoneShare(0) >= 0.5 {
			r.Loss.BalancedHours = now.Add(step).Sub(r.Loss.ended).Hours()
		}
	}
	return r
}

// spread counts the tenants that can have a space in each zone, and those that have all in one.
func (w *world) spread() (tenants, oneZone, hashed int) {
	type zones struct {
		spaces       int
		real, hashed map[string]bool
	}
	of := map[string]*zones{}
	for i := range w.spaces {
		one := of[w.spaces[i].Tenant]
		if one == nil {
			one = &zones{real: map[string]bool{}, hashed: map[string]bool{}}
			of[w.spaces[i].Tenant] = one
		}
		one.spaces++
		one.real[w.shards[w.on[i]].Zone], one.hashed[w.shards[w.made[i].hashed].Zone] = true, true
	}
	for _, one := range of {
		if one.spaces < w.Zones {
			continue
		}
		tenants++
		if len(one.real) == 1 {
			oneZone++
		}
		if len(one.hashed) == 1 {
			hashed++
		}
	}
	return tenants, oneZone, hashed
}

// lose takes the first zone away, and has others serve what they can.
func (w *world) lose(now time.Time) (l loss) {
	gone := map[string]bool{}
	for i := range w.shards {
		if one := &w.shards[i]; one.Zone == w.shards[0].Zone {
			one.Ready, one.Lost, one.Dead, gone[one.Name] = false, true, true, true
			l.Shards++
		}
	}
	awake := map[string]bool{}
	for i := range w.spaces {
		one := &w.spaces[i]
		if !gone[one.Shard] {
			continue
		}
		l.Spaces++
		if one.Awake {
			l.Awake++
		}
		if one.Portable {
			l.Portable++
			awake[one.Name] = one.Awake
		}
	}
	plan, placed := w.plan(), 0
	for second := 1; ; second++ {
		some := plan.FailOver(w.FailoversPerSecond)
		if len(some) == 0 {
			break
		}
		w.arrive(some, now)
		placed += len(some)
		l.Seconds = detection.Seconds() + float64(second)
		for _, move := range some {
			if move.Reason == placement.Failover && awake[move.Space] {
				l.AwakeSeconds = l.Seconds
			}
		}
	}
	l.Unplaced = l.Portable - placed
	return l
}

// point returns the platform as it is.
func (w *world) point(now time.Time, moves int) point {
	one := point{Hour: now.Sub(w.start).Hours(), Moves: moves}
	count, hashed := make([]int, len(w.shards)), make([]int64, len(w.shards))
	for i := range w.spaces {
		count[w.on[i]]++
		if !w.serves(i) {
			one.Down++
		}
		if w.spaces[i].Awake {
			hashed[w.made[i].hashed] += w.made[i].memory
		}
	}
	ready := 0
	for i := range w.shards {
		if !w.shards[i].Ready {
			continue
		}
		ready++
		one.Awake += float64(w.shards[i].Awake)
		one.MaxAwake = max(one.MaxAwake, float64(w.shards[i].Awake))
		one.Memory += percent(w.shards[i].Memory)
		one.MaxMemory = max(one.MaxMemory, percent(w.shards[i].Memory))
		one.MaxSpaces = max(one.MaxSpaces, float64(count[i]*len(w.shards))/float64(len(w.spaces)))
	}
	for _, memory := range hashed {
		one.MaxHashed = max(one.MaxHashed, percent(base+memory))
	}
	one.Awake /= float64(ready)
	one.Memory /= float64(ready)
	return one
}

func percent(memory int64) float64 { return 100 * float64(memory) / limit }

// zoneShare is the mean memory of the spaces of a zone's shards, as a part of that of the others.
func (w *world) zoneShare(zone int) float64 {
	var sum, count [2]float64
	for i := range w.shards {
		side := 0
		if w.shards[i].Zone != w.shards[zone].Zone {
			side = 1
		}
		sum[side] += float64(w.shards[i].Memory - base)
		count[side]++
	}
	return (sum[0] / count[0]) / (sum[1] / count[1])
}
