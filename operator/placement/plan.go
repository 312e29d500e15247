// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
)

// Plan is the shards and spaces of a platform, with what was decided since. It is not safe for concurrent use.
type Plan struct {
	shards []*load // by name
	spaces []Space
	byName map[string]*load
	// spreads are those of the tenants for which they were needed.
	spreads map[string]*spread
	// ofTenant are the positions in spaces of the spaces of other tenants. It is nil until it is needed.
	ofTenant map[string][]int
	// inZone is the number of shards in each zone.
	inZone map[string]int
	// failedOver are the names of the spaces for which FailOver has found a shard.
	failedOver map[string]bool
	// selecting are the shards with a selector. pools says that not each shard is for each space.
	selecting []*load
	pools     bool
	// nominal is the memory limit by which shards without a limit are compared.
	nominal int64
}

// load is a shard with what is placed on it. A space that moves counts on the shard to which it moves.
type load struct {
	Shard
	spaces, awake, dedicated int
	// leaving and coming are the moves in progress from and to ready shards.
	leaving, coming int
}

// spread is the number of spaces of a tenant on each shard and in each zone, and their positions.
type spread struct {
	at              []int
	onShard, inZone map[string]int
}

// New returns a plan. It changes neither of its arguments, and does not keep them.
func New(shards []Shard, spaces []Space) *Plan {
	p := &Plan{spaces: slices.Clone(spaces), byName: make(map[string]*load, len(shards)), spreads: map[string]*spread{}, inZone: map[string]int{}, nominal: 1}
	for _, one := range shards {
		if p.byName[one.Name] != nil {
			continue
		}
		l := &load{Shard: one}
		p.shards, p.byName[one.Name] = append(p.shards, l), l
		p.inZone[one.Zone]++
		p.nominal = max(p.nominal, one.MemoryLimit, one.Memory)
		if one.Selects != nil {
			p.selecting = append(p.selecting, l)
		}
		p.pools = p.pools || poolOf(l) != poolOf(p.shards[0])
	}
	slices.SortFunc(p.shards, func(a, b *load) int { return cmp.Compare(a.Name, b.Name) })
	for i := range p.spaces {
		p.count(&p.spaces[i], 1)
		p.pools = p.pools || p.spaces[i].Minor != 0
	}
	p.pools = p.pools || len(p.selecting) > 0
	return p
}

// count adds a space n times to the shards that it names.
func (p *Plan) count(space *Space, n int) {
	if on := p.byName[space.home()]; on != nil {
		on.spaces += n
		if space.Awake {
			on.awake += n
		}
		if space.Dedicated {
			on.dedicated += n
			if from := p.byName[space.Shard]; from != nil && from != on { // which manages its pod until it has moved
				from.dedicated += n
			}
		}
		if of := p.spreads[space.Tenant]; of != nil {
			of.onShard[on.Name] += n
			of.inZone[on.Zone] += n
		}
	}
	if space.MovingTo == "" {
		return
	}
	from, to := p.byName[space.Shard], p.byName[space.MovingTo]
	if from != nil && to != nil && from.Ready && to.Ready {
		from.leaving += n
		to.coming += n
	}
}

// home is the shard on which a space counts.
func (s *Space) home() string { return cmp.Or(s.MovingTo, s.Shard) }

// share is the part of the shard's memory that is taken, or will be when the spaces that were placed on it are awake.
func (p *Plan) share(l *load) float64 {
	limit := cmp.Or(l.MemoryLimit, p.nominal)
	return float64(l.Memory+int64(max(0, l.awake-l.Awake))*AwakeBytes) / float64(limit)
}

// full says whether a shard has no memory for another space.
func (p *Plan) full(l *load) bool { return l.MemoryLimit > 0 && p.share(l) >= FullPercent/100. }

// atDedicatedMax says whether a shard can't have a space because the space is dedicated.
func (p *Plan) atDedicatedMax(space *Space, l *load) bool {
	switch {
	case !space.Dedicated:
		return false
	case l.DedicatedMax == nil:
		return !space.New
	default:
		return l.dedicated >= int(*l.DedicatedMax)
	}
}

// bound says whether a space runs on the machine of its shard, as far as is known, so that it can't move.
func (p *Plan) bound(space *Space) bool {
	from := p.byName[space.Shard]
	return space.Dedicated && from != nil && from.DedicatedMax == nil
}

// spreadOf returns the spread of a tenant. The plan keeps it up to date.
func (p *Plan) spreadOf(tenant string) *spread {
	of := p.spreads[tenant]
	if of != nil {
		return of
	}
	of = &spread{at: p.positions(tenant), onShard: map[string]int{}, inZone: map[string]int{}}
	for _, i := range of.at {
		if on := p.byName[p.spaces[i].home()]; on != nil {
			of.onShard[on.Name]++
			of.inZone[on.Zone]++
		}
	}
	p.spreads[tenant] = of
	return of
}

// positions returns the positions in spaces of the spaces of a tenant. Only if it is asked about many tenants, it makes an index.
func (p *Plan) positions(tenant string) (at []int) {
	const most = 16
	if len(p.spreads) < most {
		for i := range p.spaces {
			if p.spaces[i].Tenant == tenant {
				at = append(at, i)
			}
		}
		return at
	}
	if p.ofTenant == nil {
		p.ofTenant = map[string][]int{}
		for i := range p.spaces {
			p.ofTenant[p.spaces[i].Tenant] = append(p.ofTenant[p.spaces[i].Tenant], i)
		}
	}
	return p.ofTenant[tenant]
}

// Shard returns the numbers of spaces and of awake spaces on a shard. A space that moves counts on the shard to which it moves.
func (p *Plan) Shard(name string) (spaces, awake int) {
	if on := p.byName[name]; on != nil {
		return on.spaces, on.awake
	}
	return 0, 0
}
