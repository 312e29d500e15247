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
	// memoryLook is the interval at which the guard measures the process's memory. A process that allocates 1 GiB a
	// second takes about a second from one threshold to the next.
	memoryLook = 250 * time.Millisecond
	// From strainPercent of the limit on, the space whose requests hold most gets no more memory for requests, until
	// use falls to calmPercent or its requests hold little. From sleepPercent on, a space that explains the use is put
	// to sleep.
	strainPercent, calmPercent, sleepPercent = 75, 65, 85
	// collectEvery is the minimum pause between two garbage collections that the guard starts. The guard collects
	// first, so that no space is limited because of garbage.
	collectEvery = 2 * time.Second
	// A space below the weight smallSpace can't be what fills the process. If no space explains the use, all spaces
	// whose requests hold smallRequests or more are limited.
	smallSpace, smallRequests = 32 << 20, 4 << 20
	// evictionTimeout is how long the guard waits for the memory of a space that it has put to sleep.
	evictionTimeout = 30 * time.Second
	// schemaWeight is about how many bytes of memory one byte of a CustomResourceDefinition takes, in all of its forms.
	// Package vcluster counts CEL expressions as a tenth of the memory that they take.
	schemaWeight = 10
	// memoryFailures is the number of failures that a space is charged when it is put to sleep for its memory, so that
	// its first pause is 15 seconds.
	memoryFailures = 4
)

// errMemory is the failure of a space that was put to sleep for the memory that it uses.
var errMemory = errors.New("the space used most of the memory of this process")

// Memory is the memory of this process, and its limit.
type Memory struct {
	// Limit is in bytes. The system ends a process that uses more.
	Limit int64
	// Used returns how many bytes the process uses now.
	Used func() int64
	// Collect collects the garbage and returns its memory to the system.
	Collect func()
}

// ProcessMemory returns the limit of the process's control group, or the value of GOMEMLIMIT. It returns nil if there
// is neither.
func ProcessMemory() *Memory {
	limit := debug.SetMemoryLimit(-1)
	if os.Getenv("GOMEMLIMIT") == "" {
		found, err := memlimit.FromCgroup()
		if err != nil || found > math.MaxInt64 {
			return nil
		}
		limit = int64(found)
	}
	return &Memory{Limit: limit, Used: ResidentBytes, Collect: debug.FreeOSMemory}
}

// ResidentBytes returns the resident memory of the process, that of Go and of SQLite.
func ResidentBytes() int64 {
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

// guardMemory measures the process's memory, and limits spaces, until the shard stops.
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

// relieve measures once, and does what the guard decides.
func (s *Shard) relieve(g *memoryGuard) {
	do := g.look(s.config.Clock.Now(), s.weights)
	if do.used > 0 { // record it, as the process may end soon
		s.noteMemory()
	}
	for _, name := range slices.Sorted(maps.Keys(do.strain)) {
		do.strain[name].Strain(true)
		s.config.Logger.Info("Memory is short, so the space rejects requests that need more of it", "space", name, "usedBytes", do.used, "limitBytes", g.memory.Limit)
	}
	if do.unexplained {
		s.config.Logger.Error(nil, "Memory is short, and stopping a single space would not free enough, so spaces reject requests that need more of it. "+
			"Give the process more memory, or run fewer spaces at once (spacesMax)", "usedBytes", do.used, "limitBytes", g.memory.Limit)
	}
	if do.sleep != "" {
		s.config.Logger.Error(nil, "Memory is short, so the space that uses the most is put to sleep", "space", do.sleep, "usedBytes", do.used, "limitBytes", g.memory.Limit)
		s.evict(do.sleep, fmt.Errorf("%w: %d of %d bytes were in use, most of them for this space", errMemory, do.used, g.memory.Limit))
	}
}

// weights returns the accounts of the running spaces. evicting reports whether a space that was put to sleep for its
// memory has not released it yet.
func (s *Shard) weights() (accounts map[string]*bounds.Account, evicting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	accounts = map[string]*bounds.Account{}
	for name, p := range s.places {
		switch {
		case p.state == running && p.space.account != nil:
			accounts[name] = p.space.account
		case p.state == stopping && p.evicted != nil:
			evicting = evicting || s.config.Clock.Since(p.since) < evictionTimeout
		}
	}
	return accounts, evicting
}

// weightOf estimates the memory that a space uses: what its requests hold, what its API server and controllers keep of
// its objects, and what they read from its store at once.
func weightOf(a *bounds.Account) int64 {
	return a.Memory() + a.Used(bounds.StoreBytes) + a.Used(bounds.CachedBytes) + schemaWeight*a.Used(bounds.SchemaBytes)
}

// evict puts a space to sleep at once, even if it is in use. The space wakes after a pause that doubles each time.
func (s *Shard) evict(name string, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.places[name]; p != nil && p.state == running {
		p.evicted = why
		s.halt(p)
	}
}

// memoryGuard decides which spaces are limited or put to sleep for the memory that they use. Only one goroutine may use
// it.
type memoryGuard struct {
	memory   Memory
	strained []*bounds.Account
	// collected is when garbage was last collected. judged is when it was last collected before deciding whether to put
	// a space to sleep.
	collected, judged time.Time
	unexplained       bool // the log has a line that no space explains the use
}

// relief is what the guard has decided.
type relief struct {
	used   int64
	strain map[string]*bounds.Account // accounts that get no more memory for requests
	sleep  string                     // the space to put to sleep; empty if there is none
	// unexplained is set if no space explains the use. It is set once until memory is no longer short.
	unexplained bool
}

// look decides what to do now. It also releases accounts that no longer need to be limited.
func (g *memoryGuard) look(now time.Time, weights func() (accounts map[string]*bounds.Account, evicting bool)) relief {
	used := g.memory.Used()
	g.calm(used)
	if used < g.part(strainPercent) {
		g.unexplained = false
		return relief{}
	}
	spaces, evicting := weights()
	if evicting { // its memory is free soon
		return relief{}
	}
	do := relief{used: used, strain: map[string]*bounds.Account{}}
	if used < g.part(sleepPercent) || now.Sub(g.judged) < collectEvery {
		g.strainHeaviest(now, spaces, &do)
		return do
	}
	g.judged = now
	do.used = g.collect(now)
	switch name := heaviest(spaces, weightOf); {
	case do.used < g.part(sleepPercent):
		g.strainHeaviest(now, spaces, &do)
	case name != "" && g.explains(do.used, weightOf(spaces[name])):
		do.sleep = name
	default:
		do.unexplained = !g.unexplained
		g.unexplained = true
		for name, a := range spaces {
			g.strain(name, a, smallRequests, &do)
		}
	}
	return do
}

// calm releases limited accounts: all of them if enough memory is free, otherwise those that hold little, because they
// are not what fills the process.
func (g *memoryGuard) calm(used int64) {
	least := int64(smallSpace)
	switch {
	case used < g.part(calmPercent):
		least = math.MaxInt64
	case used >= g.part(sleepPercent):
		least = smallRequests
	}
	g.strained = slices.DeleteFunc(g.strained, func(a *bounds.Account) bool {
		ends := a.Memory() < least
		if ends {
			a.Strain(false)
		}
		return ends
	})
}

// strainHeaviest limits the account whose requests hold most, if memory is still short after a garbage collection.
func (g *memoryGuard) strainHeaviest(now time.Time, spaces map[string]*bounds.Account, do *relief) {
	name := heaviest(spaces, (*bounds.Account).Memory)
	if name == "" || spaces[name].Memory() < smallSpace || slices.Contains(g.strained, spaces[name]) {
		return
	}
	if now.Sub(g.collected) >= collectEvery {
		if do.used = g.collect(now); do.used < g.part(strainPercent) {
			return
		}
	}
	g.strain(name, spaces[name], smallSpace, do)
}

func (g *memoryGuard) strain(name string, a *bounds.Account, least int64, do *relief) {
	if a.Memory() >= least && !slices.Contains(g.strained, a) {
		g.strained = append(g.strained, a)
		do.strain[name] = a
	}
}

// explains reports whether memory would no longer be short without a space of this weight.
func (g *memoryGuard) explains(used, weight int64) bool {
	return weight >= smallSpace && used-weight < g.part(strainPercent)
}

func (g *memoryGuard) part(percent int64) int64 { return g.memory.Limit / 100 * percent }

func (g *memoryGuard) collect(now time.Time) (used int64) {
	g.memory.Collect()
	g.collected = now
	return g.memory.Used()
}

// heaviest returns the name of the space with the largest weight; empty if there is no space.
func heaviest(spaces map[string]*bounds.Account, weigh func(*bounds.Account) int64) string {
	names := slices.Sorted(maps.Keys(spaces))
	if len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(weigh(spaces[a]), weigh(spaces[b])) })
}
