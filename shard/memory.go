// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/berth-dev/berth/bounds"
)

const (
	// memoryLook is how often the process's memory is looked at: a process that is filled at 1 GiB a second gets from one
	// threshold to the next in a GiB or so.
	memoryLook = 250 * time.Millisecond
	// strainPercent of the limit in use, the heaviest space gets no more memory for requests, until calmPercent is reached.
	// At sleepPercent it is put to sleep.
	strainPercent, calmPercent, sleepPercent = 75, 65, 85
	// collectEvery is the pause between two collections of garbage that the guard asks for: what is garbage is no reason
	// to put anybody to sleep.
	collectEvery = 2 * time.Second
	// smallSpace is a weight below which a space is never the one to suffer: it is not what fills the process.
	smallSpace = 32 << 20
	// schemaWeight is about what a byte of a CustomResourceDefinition takes in its forms in memory.
	schemaWeight = 10
	// memoryFailures is how many failures a space put to sleep for its memory counts as having had, so that its first pause
	// is a quarter of a minute.
	memoryFailures = 4
)

// errMemory is why a space does not run that was put to sleep for the memory it takes.
var errMemory = errors.New("the space took most of this process's memory")

// Memory is the memory of this process, and how much of it may be used.
type Memory struct {
	// Limit in bytes, beyond which the system ends the process.
	Limit int64
	// Used returns how many bytes the process takes of it now.
	Used func() int64
	// Collect gives back to the system what is garbage.
	Collect func()
}

// ProcessMemory returns the limit of the process's control group, or what GOMEMLIMIT says; nil if there is none.
func ProcessMemory() *Memory {
	limit := debug.SetMemoryLimit(-1)
	if os.Getenv("GOMEMLIMIT") == "" {
		found, err := memlimit.FromCgroup()
		if err != nil || found > math.MaxInt64 {
			return nil
		}
		limit = int64(found)
	}
	return &Memory{Limit: limit, Used: residentBytes, Collect: debug.FreeOSMemory}
}

// residentBytes is what the system has given the process, of Go's and of SQLite's.
func residentBytes() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if fields := strings.Fields(string(statm)); err == nil && len(fields) > 1 {
		if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			return pages * int64(os.Getpagesize())
		}
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.Sys - stats.HeapReleased) //nolint:gosec // less than the machine's memory
}

// guardMemory looks after the process's memory until the shard stops.
func (s *Shard) guardMemory(m Memory) {
	g := &memoryGuard{memory: m}
	for {
		timer := s.config.Clock.NewTimer(memoryLook)
		select {
		case <-s.life.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		s.relieve(g)
	}
}

// relieve does what the guard finds to be done.
func (s *Shard) relieve(g *memoryGuard) {
	do := g.look(s.config.Clock.Now(), s.weights)
	if do.strain != nil {
		do.strain.Strain(true)
		s.config.Logger.Info("Memory is short: the heaviest space gets none for further requests", "space", do.space, "used", do.used, "limit", g.memory.Limit)
	}
	if do.sleep {
		s.config.Logger.Error(nil, "Memory is short: the heaviest space is put to sleep", "space", do.space, "used", do.used, "limit", g.memory.Limit)
		s.evict(do.space, fmt.Errorf("%w: %d of %d bytes were in use, most of them for this space", errMemory, do.used, g.memory.Limit))
	}
}

// weights are the accounts of the spaces that run.
func (s *Shard) weights() map[string]*bounds.Account {
	s.mu.Lock()
	defer s.mu.Unlock()
	accounts := map[string]*bounds.Account{}
	for name, p := range s.places {
		if p.state == running && p.space.account != nil {
			accounts[name] = p.space.account
		}
	}
	return accounts
}

// weightOf is about how much memory a space takes: what its requests hold, and what its API server and controllers keep of
// its objects.
func weightOf(a *bounds.Account) int64 {
	return a.Memory() + a.Used(bounds.StoreBytes) + schemaWeight*a.Used(bounds.SchemaBytes)
}

// evict puts a space to sleep at once, whoever uses it. It wakes after a pause that doubles each time.
func (s *Shard) evict(name string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[name]; p != nil && p.state == running {
		p.evicted = why
		s.halt(p)
	}
}

// memoryGuard decides when a space suffers for the memory that it takes. It is used by one goroutine.
type memoryGuard struct {
	memory    Memory
	strained  []*bounds.Account
	collected time.Time
}

// relief is what is to be done.
type relief struct {
	space  string
	used   int64
	strain *bounds.Account // nil if none is to be put under strain
	sleep  bool
}

// look says what is to be done now, to one space at most: the heaviest, and only if it is not small.
func (g *memoryGuard) look(now time.Time, accounts func() map[string]*bounds.Account) relief {
	used := g.memory.Used()
	if used < g.memory.Limit/100*calmPercent {
		for _, a := range g.strained {
			a.Strain(false)
		}
		g.strained = nil
	}
	if used < g.memory.Limit/100*strainPercent {
		return relief{}
	}
	spaces := accounts()
	if len(spaces) == 0 {
		return relief{}
	}
	heaviest := slices.MaxFunc(slices.Sorted(maps.Keys(spaces)), func(a, b string) int {
		return cmp.Compare(weightOf(spaces[a]), weightOf(spaces[b]))
	})
	account := spaces[heaviest]
	do := relief{space: heaviest, used: used}
	heavy := weightOf(account) >= smallSpace
	if heavy && !slices.Contains(g.strained, account) {
		g.strained = append(g.strained, account)
		do.strain = account
	}
	if used < g.memory.Limit/100*sleepPercent || now.Sub(g.collected) < collectEvery {
		return do
	}
	g.memory.Collect()
	g.collected = now
	do.used = g.memory.Used()
	do.sleep = heavy && do.used >= g.memory.Limit/100*sleepPercent
	return do
}
