// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	// MaxLeaving is how many spaces leave a shard at once. Moves that somebody has asked for count, and aren't limited.
	MaxLeaving = 2
	// MaxMoving is how many spaces of the platform move at once.
	MaxMoving = 4
	// MoveInterval is how long a space that has moved stays where it is, unless its shard is drained.
	MoveInterval = 10 * time.Minute
	// BalanceInterval is how long a shard rests after a space has moved from or to it for balance, so that its memory can show the effect.
	BalanceInterval = time.Minute
	// heatGap is how much larger the memory share of a shard must be than that of another before an awake space moves.
	heatGap = 0.15
	// countGap and countPart are how many more spaces a shard must have than another before a sleeping space moves: whichever is more, a
	// number, or a part of the mean.
	countGap, countPart = 4, 0.25
	// awakePart is the part of the mean number of awake spaces that a shard keeps, however much memory it takes: a process doesn't give
	// all memory back.
	awakePart = 0.5
)

// Moves decides which spaces begin to move now, and counts them. Spaces leave shards that drain, shards that they aren't for, and shards that
// have far more than others. Sleeping spaces move first where they have an effect, because they move fastest.
func (p *Plan) Moves(now time.Time) (moves []Move) {
	moving := 0
	for _, one := range p.shards {
		moving += one.leaving
	}
	for moving+len(moves) < MaxMoving {
		move, ok := p.drain()
		if !ok {
			move, ok = p.misplaced()
		}
		if !ok {
			move, ok = p.balance(now)
		}
		if !ok {
			break
		}
		moves = append(moves, move)
	}
	return moves
}

// drain moves a space off the draining shard that has the fewest moves in progress.
func (p *Plan) drain() (Move, bool) {
	sources := slices.DeleteFunc(slices.Clone(p.shards), func(one *load) bool {
		return !one.Draining || !one.Ready || one.leaving >= MaxLeaving
	})
	slices.SortStableFunc(sources, func(a, b *load) int { return cmp.Compare(a.leaving, b.leaving) })
	for _, from := range sources {
		space := p.next(from, func(s *Space) bool { return !s.Dedicated && !p.pools || p.hasPlace(s) })
		if space == nil {
			continue
		}
		if to, err := p.Place(*space); err == nil {
			return Move{Space: space.Name, From: from.Name, To: to, Reason: Drain}, true
		}
	}
	return Move{}, false
}

// balance moves an awake space off a shard that has taken far more of its memory than another one, or a sleeping space off one that has
// far more spaces. Sleeping spaces take no memory, so that their moves never undo the others.
func (p *Plan) balance(now time.Time) (Move, bool) {
	pools := map[pool][]*load{}
	var order []pool
	for _, one := range p.shards {
		if !one.Ready || one.Draining || one.leaving+one.coming > 0 || now.Sub(one.Balanced) < BalanceInterval {
			continue
		}
		of := poolOf(one)
		if pools[of] == nil {
			order = append(order, of)
		}
		pools[of] = append(pools[of], one)
	}
	for _, of := range order {
		if move, ok := p.balanceAmong(pools[of], now); ok {
			return move, true
		}
	}
	return Move{}, false
}

// balanceAmong is [Plan.balance] among the shards of a pool.
func (p *Plan) balanceAmong(rested []*load, now time.Time) (Move, bool) {
	open := slices.DeleteFunc(slices.Clone(rested), func(one *load) bool { return one.Unschedulable || p.full(one) })
	if len(rested) < 2 || len(open) == 0 {
		return Move{}, false
	}
	heat := func(one *load) float64 { return p.share(one) }
	spaces := func(one *load) float64 { return float64(one.spaces) }
	mean, awake := 0., 0.
	for _, one := range rested {
		mean += spaces(one) / float64(len(rested))
		awake += float64(one.awake) / float64(len(rested))
	}
	for _, by := range []struct {
		measure func(*load) float64
		gap     func(from, to *load) float64
		awake   bool
	}{
		{heat, func(from, to *load) float64 { return max(heatGap, p.weight(from)+p.weight(to)) }, true},
		{spaces, func(_, _ *load) float64 { return max(countGap, countPart*mean) }, false},
	} {
		compare := func(a, b *load) int {
			return cmp.Or(cmp.Compare(by.measure(a), by.measure(b)), cmp.Compare(a.spaces, b.spaces), cmp.Compare(a.Name, b.Name))
		}
		to := slices.MinFunc(open, compare)
		sources := slices.SortedFunc(slices.Values(rested), func(a, b *load) int { return compare(b, a) })
		for _, from := range sources { // the first one may have nothing that can move
			if from == to {
				break
			}
			if by.measure(from)-by.measure(to) <= by.gap(from, to) || by.awake && float64(from.awake) <= awakePart*awake {
				continue
			}
			space := p.next(from, func(s *Space) bool {
				return s.Awake == by.awake && !s.Busy && now.Sub(s.Moved) >= MoveInterval && !p.atDedicatedMax(s, to)
			})
			if space == nil {
				continue
			}
			from.Balanced, to.Balanced = now, now
			p.put(*space, to.Name)
			return Move{Space: space.Name, From: from.Name, To: to.Name, Reason: Balance}, true
		}
	}
	return Move{}, false
}

// weight is the memory share of an awake space on a shard: the mean of those that it has.
func (p *Plan) weight(l *load) float64 {
	if l.awake == 0 {
		return float64(AwakeBytes) / float64(cmp.Or(l.MemoryLimit, p.nominal))
	}
	return p.share(l) / float64(l.awake)
}

// next returns the space that leaves a shard next, of those that fit: a sleeping one if there is one, whose tenant has the most spaces there, by
// name.
func (p *Plan) next(from *load, fits func(*Space) bool) *Space {
	of := map[string]int{}
	for i := range p.spaces {
		if p.spaces[i].home() == from.Name {
			of[p.spaces[i].Tenant]++
		}
	}
	var best *Space
	rank := func(s *Space) int {
		if s.used() {
			return math.MaxInt
		}
		return -of[s.Tenant]
	}
	for i := range p.spaces {
		one := &p.spaces[i]
		if one.Shard != from.Name || one.MovingTo != "" || one.New || one.Fixed || p.bound(one) || !fits(one) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(rank(one), rank(best)), cmp.Compare(of[best.Tenant], of[one.Tenant]), cmp.Compare(one.Name, best.Name)) < 0 {
			best = one
		}
	}
	return best
}

// FailOver places up to so many portable spaces of dead shards on others, those first that don't sleep, and counts them there. One that moves goes to
// where it moves, if that is ready. The other spaces of a dead shard wait for it: it has their stores.
func (p *Plan) FailOver(limit int) (moves []Move) {
	var waiting []int
	for i := range p.spaces {
		one := &p.spaces[i]
		if from := p.byName[one.Shard]; one.Portable && !p.bound(one) && !one.New && one.Shard != "" && (from == nil || from.Dead) && !p.failedOver[one.Name] {
			waiting = append(waiting, i)
		}
	}
	slices.SortFunc(waiting, func(a, b int) int {
		x, y := &p.spaces[a], &p.spaces[b]
		if x.used() != y.used() {
			if x.used() {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.Name, y.Name)
	})
	for _, i := range waiting {
		if len(moves) >= limit {
			break
		}
		one := p.spaces[i]
		to := one.MovingTo
		if target := p.byName[to]; target == nil || !target.Ready {
			var err error
			if to, err = p.Place(one); err != nil && (one.Dedicated || p.pools) {
				continue
			}
			if err != nil {
				break // and no other space fits
			}
		}
		if p.failedOver == nil {
			p.failedOver = map[string]bool{}
		}
		p.failedOver[one.Name] = true
		moves = append(moves, Move{Space: one.Name, From: one.Shard, To: to, Reason: Failover})
	}
	return moves
}

// Stuck returns the names of the spaces that move to a shard that is lost or doesn't exist. The store is still where it was: a space
// begins to be served by the other shard only when it no longer moves.
func (p *Plan) Stuck() (names []string) {
	for i := range p.spaces {
		if one := &p.spaces[i]; one.MovingTo != "" {
			if to := p.byName[one.MovingTo]; to == nil || to.Lost {
				names = append(names, one.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
