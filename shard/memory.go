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
	// strainPercent of the limit in use, the space whose requests hold most gets no more memory for requests, until
	// calmPercent is reached or they hold little. At sleepPercent a space that explains the use is put to sleep.
	strainPercent, calmPercent, sleepPercent = 75, 65, 85
	// collectEvery is the pause between two collections of garbage that the guard asks for: what is garbage is no reason
	// to make anybody suffer.
	collectEvery = 2 * time.Second
	// smallSpace is a weight below which a space is not what fills the process. Where no space explains the use, those
	// whose requests hold smallRequests suffer.
	smallSpace, smallRequests = 32 << 20, 4 << 20
	// evictionTimeout is how long the guard waits at most for a space that it has put to sleep to give its memory back.
	evictionTimeout = 30 * time.Second
	// schemaWeight is about what a byte of a CustomResourceDefinition takes in its forms in memory. Package vcluster counts CEL
	// expressions as a tenth of what they take.
	schemaWeight = 10
	// memoryFailures is how many failures a space put to sleep for its memory counts as having had, so that its first pause
	// is a quarter of a minute.
	memoryFailures = 4
)

// errMemory is why a space does not run that was put to sleep for the memory it takes.
var errMemory = errors.New("the space used most of the memory of this process")

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
	if do.used > 0 { // the process may end soon
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

// weights are the accounts of the spaces that run. evicting says that one was put to sleep for its memory, and still
// holds it.
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

// weightOf is about how much memory a space takes: what its requests hold, what its API server and controllers keep of its
// objects, and what they read of its store at once.
func weightOf(a *bounds.Account) int64 {
	return a.Memory() + a.Used(bounds.StoreBytes) + a.Used(bounds.CachedBytes) + schemaWeight*a.Used(bounds.SchemaBytes)
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
	memory   Memory
	strained []*bounds.Account
	// collected is when garbage was last collected, judged when that was last to find out whether a space is put to sleep.
	collected, judged time.Time
	unexplained       bool // it was said that no space explains the use
}

// relief is what is to be done.
type relief struct {
	used   int64
	strain map[string]*bounds.Account // those to be put under strain
	sleep  string                     // the space to be put to sleep; empty if none is
	// unexplained says, once until memory is no longer short, that no space explains the use.
	unexplained bool
}

// look says what is to be done now. It ends the strain of accounts that need it no longer.
func (g *memoryGuard) look(now time.Time, weights func() (accounts map[string]*bounds.Account, evicting bool)) relief {
	used := g.memory.Used()
	g.calm(used)
	if used < g.part(strainPercent) {
		g.unexplained = false
		return relief{}
	}
	spaces, evicting := weights()
	if evicting { // soon there is more
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

// calm ends strain: all of it when enough memory is free, else that of accounts that hold little. What still fills the
// process is not theirs.
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

// strainHeaviest puts the account under strain whose requests hold most, if that is not garbage's doing.
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

// explains reports whether the end of a space of some weight would make memory no longer short.
func (g *memoryGuard) explains(used, weight int64) bool {
	return weight >= smallSpace && used-weight < g.part(strainPercent)
}

func (g *memoryGuard) part(percent int64) int64 { return g.memory.Limit / 100 * percent }

func (g *memoryGuard) collect(now time.Time) (used int64) {
	g.memory.Collect()
	g.collected = now
	return g.memory.Used()
}

// heaviest is the space with the most of something, empty if there is no space.
func heaviest(spaces map[string]*bounds.Account, weigh func(*bounds.Account) int64) string {
	names := slices.Sorted(maps.Keys(spaces))
	if len(names) == 0 {
		return ""
	}
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(weigh(spaces[a]), weigh(spaces[b])) })
}
