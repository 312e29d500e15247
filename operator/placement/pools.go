// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import "fmt"

// pool is what the shards of a pool have in common: each can have the spaces of the others.
type pool struct {
	minor   uint
	selects string
}

func poolOf(one *load) pool {
	if one.Selects == nil {
		return pool{minor: one.Minor}
	}
	return pool{one.Minor, one.Selects.String()}
}

// skew is how many minor versions of Kubernetes a space may move at once, up or down. An API server reads what one of the next minor
// version has stored, and not more.
const skew = 1

// unfit returns why a shard isn't one of those that a space is for; nil if it is.
func (p *Plan) unfit(space *Space, one *load) error {
	if space.Minor != 0 && space.Minor != one.Minor {
		return fmt.Errorf("shard %s serves Kubernetes 1.%d, and spec.kubernetesVersion of the space is 1.%d; name a shard that serves it, or change the field", one.Name, one.Minor, space.Minor)
	}
	if from := p.byName[space.Shard]; from != nil && from.Minor != 0 && one.Minor != 0 && max(from.Minor, one.Minor)-min(from.Minor, one.Minor) > skew {
		return fmt.Errorf("shard %s serves Kubernetes 1.%d, and shard %s, which has the space, 1.%d; move it by one minor version at a time", one.Name, one.Minor, from.Name, from.Minor)
	}
	switch selected := p.selected(space); {
	case one.Selects == nil && selected:
		return fmt.Errorf("shard %s doesn't select the space, and other shards do; name one of those, or change the labels of the space", one.Name)
	case one.Selects != nil && !one.Selects.Matches(space.Labels):
		return fmt.Errorf("shard %s has only spaces with the labels %s; name another one, or change the labels of the space", one.Name, one.Selects)
	}
	return nil
}

// hasPlace reports whether a shard can take a space.
func (p *Plan) hasPlace(space *Space) bool {
	_, err := p.choose(*space)
	return err == nil
}

// selected reports whether any shard selects a space.
func (p *Plan) selected(space *Space) bool {
	for _, one := range p.selecting {
		if one.Selects.Matches(space.Labels) {
			return true
		}
	}
	return false
}

// misplaced moves a space to one of the shards that it is for, if that which it has isn't one.
func (p *Plan) misplaced() (Move, bool) {
	if !p.pools {
		return Move{}, false
	}
	for _, from := range p.shards {
		if !from.Ready || from.leaving >= MaxLeaving {
			continue
		}
		space := p.next(from, func(s *Space) bool {
			return p.unfit(s, from) != nil && p.hasPlace(s)
		})
		if space == nil {
			continue
		}
		if to, err := p.Place(*space); err == nil {
			return Move{Space: space.Name, From: from.Name, To: to, Reason: Pool}, true
		}
	}
	return Move{}, false
}
