// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import "errors"

// A space exceeds its share of the process's memory if its weight, which the memory guard also uses, is more than
// sharePercent of the limit. It is within its share again at lessThanShare percent less than that. A weight between the
// two is neither, so that small variations change nothing.
const sharePercent, lessThanShare = 10, 10

// ShareUse says whether a space is within its share of the process's memory.
type ShareUse int

// The values of [ShareUse].
const (
	// ShareUnknown is the value for a space that starts or has not run in this process, and for all spaces of a process
	// without a memory limit.
	ShareUnknown ShareUse = iota
	WithinShare
	NearShare
	OverShare
)

// MemoryShare returns how many bytes of the process's memory one space may use; 0 if the process has no limit.
func (s *Shard) MemoryShare() int64 {
	if s.config.Memory == nil {
		return 0
	}
	return s.config.Memory.Limit / 100 * sharePercent
}

// ShareUse returns whether a space is within its share. A space that was put to sleep for its memory exceeds its share
// until it runs again.
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
