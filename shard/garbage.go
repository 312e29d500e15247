// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// gcPercent is GOGC of a process that runs spaces: those at rest make little
	// garbage, so that half of the usual headroom for it costs next to no time, and
	// memory is what bounds how many there can be.
	gcPercent = 50
	// ballast is memory that counts as used but that nobody touches, so that the
	// system never provides it. It gives the collector gcPercent of it as headroom,
	// however few spaces the process runs: a small heap would be collected all the
	// time while a space is busy.
	ballast = 128 << 20
	// ballastLimit is the least limit of a process's memory with a ballast: a smaller
	// process lacks the headroom.
	ballastLimit = 512 << 20
	// softPercent of the limit is where the runtime collects all the time.
	softPercent = 90
)

// TuneGC sets this process's garbage collection up for running spaces, unless
// GOGC does, and has it collect more often as the memory that the process may use
// runs out, unless GOMEMLIMIT does. It holds until done is called.
func TuneGC() (done func()) {
	memory := ProcessMemory()
	limit := int64(math.MaxInt64)
	if memory != nil && os.Getenv("GOMEMLIMIT") == "" {
		limit = memory.Limit / 100 * softPercent
		debug.SetMemoryLimit(limit)
	}
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	debug.SetGCPercent(gcPercent)
	if memory != nil && memory.Limit < ballastLimit {
		return func() {}
	}
	headroom := make([]byte, ballast)
	if limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit + ballast) // it counts as memory, and is none
	}
	return func() { runtime.KeepAlive(headroom) }
}

// giveBackMemory gives the system the memory of spaces that went to sleep: the
// runtime by itself keeps much of it for hours. What is left of them, above all in
// the host's watches, was made while they were awake, and lies scattered in what
// is garbage now, a small thing in a page: it is made anew once that has been
// collected.
func (s *Shard) giveBackMemory(rest []*place) {
	if len(rest) > 0 {
		runtime.GC()
	}
	names := make([]string, 0, len(rest))
	for _, p := range rest {
		names = append(names, p.name)
	}
	if err := s.host.Pack(names); err != nil {
		s.config.Logger.Error(err, "Could not compact what is cached for sleeping spaces; they use more memory than necessary")
	}
	s.rewatch(rest)
	debug.FreeOSMemory()
	sqlite.FreeOSMemory()
}

// rewatch makes anew what watches the host objects of places that sleep still.
func (s *Shard) rewatch(rest []*place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range rest {
		if p.state == asleep && p.unwatch != nil {
			p.unwatch = s.watchHost(p) // it takes the place of the one before
		}
	}
}
