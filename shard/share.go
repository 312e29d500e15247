// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import "errors"

// A space outgrows its share of the process's memory if its weight, which is also what the memory guard goes by, is more than
// sharePercent of the limit. It is within its share again below a tenth less: a weight that swings about the limit is neither.
const sharePercent, lessThanShare = 10, 10

// ShareUse says how much a space takes of its share of the process's memory.
type ShareUse int

// Uses of a share.
const (
	// ShareUnknown is that of a space that starts, or has not run in this process yet, and of a process without a limit.
	ShareUnknown ShareUse = iota
	WithinShare
	NearShare
	OverShare
)

// MemoryShare is how many bytes of the process's memory a space may weigh; 0 if the process has no limit.
func (s *Shard) MemoryShare() int64 {
	if s.config.Memory == nil {
		return 0
	}
	return s.config.Memory.Limit / 100 * sharePercent
}

// ShareUse of a space. A space that was put to sleep for the memory that it took is over its share until it runs again.
func (s *Shard) ShareUse(name string) ShareUse {
	share := s.MemoryShare()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[name]
	switch {
	case share == 0 || p == nil:
		return ShareUnknown
	case p.evicted != nil || errors.Is(p.failure, errMemory):
		return OverShare
	case p.state == running && p.space.account != nil:
		return shareUse(weightOf(p.space.account), share)
	case p.state == asleep && p.started && p.failure == nil:
		return WithinShare
	default:
		return ShareUnknown
	}
}

func shareUse(weight, share int64) ShareUse {
	switch {
	case weight > share:
		return OverShare
	case weight > share/100*(100-lessThanShare):
		return NearShare
	default:
		return WithinShare
	}
}
