// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// spreadSlack is how much more of its memory a shard may have taken than the emptiest one, and still get a space because the tenant
	// has fewer there.
	spreadSlack = 0.2
	// shareStep is the difference in memory shares from which they count. Below, the numbers of spaces decide.
	shareStep = 0.05
)

// NoShardError is the error for a space that no shard can get. Each shard counts once.
type NoShardError struct {
	// NotReady is the number of shards that aren't ready, Closed that of ready ones that are unschedulable or drained, and Full that of
	// the others with too little memory left. Dedicated is that of shards that may have no more dedicated spaces, such as the space, and
	// Other that of shards that the space isn't for.
	NotReady, Closed, Full, Dedicated, Other int
}

// Error implements error. It says what to do.
func (e *NoShardError) Error() string {
	var why []string
	for _, one := range []struct {
		count        int
		what, remedy string
	}{
		{e.NotReady, "not ready", "check the pods of the platform"},
		{e.Closed, "cordoned or drained", "run berth shard uncordon"},
		{e.Full, fmt.Sprintf("at %d %% of the memory limit or more", FullPercent), "add replicas, or raise the limit"},
		{e.Dedicated, "with as many dedicated spaces as they may have", "raise dedicated.max"},
		{e.Other, "for other spaces", "check spec.kubernetesVersion and the labels of the space against berth shard list -o wide; a space moves by one minor version of Kubernetes at a time"},
	} {
		if one.count > 0 {
			why = append(why, fmt.Sprintf("%d %s (%s)", one.count, one.what, one.remedy))
		}
	}
	if len(why) == 0 {
		return "there is no other shard; add replicas"
	}
	return "no shard can take the space: " + strings.Join(why, ", ")
}

// Place chooses a shard for a space. A space of the plan that has a shard gets another one. The plan counts the space on the shard from
// then on. Fails with a [*NoShardError]. A new space of the name of one whose store a shard retains gets that shard, or none.
//
// Only shards that are for the space, ready, schedulable, and not full get it. Among those, the one is chosen on which, and in the zone of
// which, the tenant has the fewest spaces, unless others have much more memory left. Then the memory decides, the number of awake spaces if the
// space is awake, that of all spaces, and at last the name.
func (p *Plan) Place(space Space) (string, error) {
	to, err := p.choose(space)
	if err != nil {
		return "", err
	}
	p.put(space, to.Name)
	return to.Name, nil
}

func (p *Plan) choose(space Space) (*load, error) {
	for _, one := range p.shards {
		if !space.New || space.Shard != "" || !slices.Contains(one.Retained, space.Name) {
			continue
		}
		if !one.Ready {
			return nil, fmt.Errorf("shard %s retains the store of an earlier space of this name, and isn't ready; check its pod, or, if it is gone for good, delete the Shard object", one.Name)
		}
		return one, nil
	}
	open, closed := []*load{}, &NoShardError{}
	for _, one := range p.shards {
		switch {
		case one.Name == space.Shard:
		case p.pools && p.unfit(&space, one) != nil:
			closed.Other++
		case !one.Ready:
			closed.NotReady++
		case one.Unschedulable || one.Draining:
			closed.Closed++
		case p.full(one):
			closed.Full++
		case p.atDedicatedMax(&space, one):
			closed.Dedicated++
		default:
			open = append(open, one)
		}
	}
	if len(open) == 0 {
		return nil, closed
	}
	lowest := p.share(open[0])
	for _, one := range open[1:] {
		lowest = min(lowest, p.share(one))
	}
	open = slices.DeleteFunc(open, func(one *load) bool { return p.share(one) > lowest+spreadSlack })
	of, on := p.spreadOf(space.Tenant), p.byName[space.home()]
	inZone := func(one *load) float64 { // by shard, as zones may have different numbers of them
		return float64(of.inZone[one.Zone]-count(on != nil && one.Zone == on.Zone)) / float64(p.inZone[one.Zone])
	}
	awake := func(one *load) int {
		if !space.Awake { // otherwise all sleeping spaces of a lost shard would be placed on the one with the fewest awake spaces
			return 0
		}
		return one.awake
	}
	step := func(one *load) int { return int((p.share(one) - lowest) / shareStep) }
	return slices.MinFunc(open, func(a, b *load) int {
		return cmp.Or(
			cmp.Compare(inZone(a), inZone(b)), cmp.Compare(of.onShard[a.Name], of.onShard[b.Name]),
			cmp.Compare(step(a), step(b)), cmp.Compare(awake(a), awake(b)), cmp.Compare(a.spaces, b.spaces), cmp.Compare(a.Name, b.Name),
		)
	}), nil
}

// count is 1 if the space itself is one of those counted.
func count(itself bool) int {
	if itself {
		return 1
	}
	return 0
}

// put counts a space on a shard: as its shard if it has none, or else as the one to which it moves.
func (p *Plan) put(space Space, to string) {
	of, at := p.spreadOf(space.Tenant), -1
	for _, i := range of.at {
		if p.spaces[i].Name == space.Name {
			at = i
		}
	}
	if at < 0 {
		at = len(p.spaces)
		p.spaces = append(p.spaces, space)
		of.at = append(of.at, at)
	} else {
		p.count(&p.spaces[at], -1)
	}
	if one := &p.spaces[at]; one.Shard == "" {
		one.Shard = to
	} else {
		one.MovingTo = to
	}
	p.count(&p.spaces[at], 1)
}

// Errors of [Plan.Direct].
var (
	// ErrMoving is that of a space that is already being moved.
	ErrMoving = errors.New("the space is being moved already; wait until it has arrived")
	// ErrNotPlaced is that of a space without a shard, or without a store.
	ErrNotPlaced = errors.New("the space is not created yet; wait until it is ready")
	// ErrThere is that of a space that the shard has already.
	ErrThere = errors.New("the space is on that shard already; name another shard, or none to have one chosen")
)

// Direct checks a move that somebody has asked for, and counts it. It returns the shard to which the space moves: the named one, or one
// that it chooses if to is empty. A named shard may be unschedulable. Errors say what to do.
func (p *Plan) Direct(space Space, to string) (string, error) {
	from, target := p.byName[space.Shard], p.byName[to]
	switch {
	case space.Shard == "", space.New:
		return "", ErrNotPlaced
	case space.MovingTo != "":
		return "", ErrMoving
	case space.Shard == to:
		return "", ErrThere
	case from == nil:
		return "", fmt.Errorf("its shard %s, which has the store, doesn't exist; bring the pod of this name back", space.Shard)
	case !from.Ready && !space.Portable:
		return "", fmt.Errorf("its shard %s, which has the store, is not ready; wait until its pod is back", space.Shard)
	case p.bound(&space):
		return "", fmt.Errorf("shard %s runs its dedicated spaces on its own machine, or its version of Berth is too old to move them; set spec.isolation to Shared first", space.Shard)
	case to == "":
		return p.Place(space)
	case target == nil:
		return "", fmt.Errorf("there is no shard %s; berth shard list lists them", to)
	case !target.Ready:
		return "", fmt.Errorf("shard %s is not ready; wait until it is, or name another one", to)
	case target.Draining:
		return "", fmt.Errorf("shard %s is being drained; run berth shard uncordon %s, or name another one", to, to)
	case p.unfit(&space, target) != nil:
		return "", p.unfit(&space, target)
	case p.full(target):
		return "", fmt.Errorf("shard %s is at %d %% of its memory limit or more; name another one", to, FullPercent)
	case p.atDedicatedMax(&space, target):
		return "", fmt.Errorf("shard %s may have no more dedicated spaces; raise dedicated.max, or name another one", to)
	}
	p.put(space, to)
	return to, nil
}
