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
	// gcPercent is GOGC of a process that runs spaces. Idle spaces produce little garbage, so half of the default
	// headroom costs almost no processor time, and memory limits the number of spaces.
	gcPercent = 50
	// ballast is the size of an allocation that counts as used but is never touched, so that the system never provides
	// its pages. It adds gcPercent of its size to the headroom of the collector. Without it, the runtime would collect
	// the small heap of a process with few spaces all the time while a space is busy.
	ballast = 128 << 20
	// ballastLimit is the smallest memory limit of a process that gets a ballast: smaller processes don't have the
	// headroom.
	ballastLimit = 512 << 20
	// softPercent is the percentage of the memory limit from which the runtime collects all the time.
	softPercent = 90
)

// TuneGC configures the garbage collection of this process for running spaces, unless GOGC is set. It also makes the
// runtime collect more often when the process comes close to its memory limit, unless GOMEMLIMIT is set. Calling done
// restores the previous configuration.
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
		debug.SetMemoryLimit(limit + ballast) // the runtime counts the ballast, although it takes no memory
	}
	return func() { runtime.KeepAlive(headroom) }
}

// giveBackMemory returns the memory of spaces that went to sleep to the system. By itself, the runtime keeps much of it
// for hours. Small objects of these spaces remain, above all in the watches on the host. They were allocated while the
// spaces were awake, so each of them keeps a page that is otherwise garbage. So giveBackMemory collects the garbage,
// and then copies these objects.
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

// rewatch replaces the watches on the host objects of the places that still sleep, so that they are allocated together.
func (s *Shard) rewatch(rest []*place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range rest {
		if p.state == asleep && p.unwatch != nil {
			p.unwatch = s.watchHost(p) // replaces the watch that was there before
		}
	}
}
