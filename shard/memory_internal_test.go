// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/bounds"
)

const mib = 1 << 20

// filled is a guard of a process with 1000 MiB, and a clock that goes on a minute a look.
type filled struct {
	guard         *memoryGuard
	used, garbage int64 // in MiB
	now           time.Time
	spaces        map[string]*bounds.Account
	evicting      bool
}

func newFilled(spaces map[string]*bounds.Account) *filled {
	f := &filled{now: time.Now(), spaces: spaces}
	f.guard = &memoryGuard{memory: Memory{
		Limit: 1000 * mib, Used: func() int64 { return f.used * mib },
		Collect: func() { f.used, f.garbage = f.used-f.garbage, 0 },
	}}
	return f
}

// look does what the shard does with what the guard says.
func (f *filled) look(used, garbage int64) relief {
	f.now, f.used, f.garbage = f.now.Add(time.Minute), used, garbage
	do := f.guard.look(f.now, func() (map[string]*bounds.Account, bool) { return f.spaces, f.evicting })
	for _, a := range do.strain {
		a.Strain(true)
	}
	return do
}

func (do relief) nothing() bool { return len(do.strain) == 0 && do.sleep == "" && !do.unexplained }

// holding is an account of a space with so many MiB of requests and of objects.
func holding(requests, objects int64) *bounds.Account {
	a := bounds.NewAccount(nil)
	a.Add(bounds.MemoryBytes, requests*mib)
	a.Add(bounds.StoreBytes, objects*mib)
	return a
}

func refused(a *bounds.Account) bool {
	err := a.Take(bounds.MemoryBytes, 1)
	if err == nil {
		a.Give(bounds.MemoryBytes, 1)
	}
	return err != nil
}

// S7, L3: the space that takes most of the memory suffers first, and small ones never do.
func TestHostileTheHeaviestSpaceSuffersWhenMemoryIsShort(t *testing.T) {
	heavy, light := holding(200, 100), holding(100, 0)
	f := newFilled(map[string]*bounds.Account{"heavy": heavy, "light": light, "small": holding(1, 0)})
	if do := f.look(700, 0); !do.nothing() {
		t.Errorf("at 70 %%: %+v", do)
	}
	if do := f.look(760, 200); !do.nothing() {
		t.Errorf("at 76 %%, most of it garbage: %+v", do)
	}
	if do := f.look(760, 0); do.strain["heavy"] != heavy || do.sleep != "" {
		t.Fatalf("at 76 %%: %+v, want that the heavy one is put under strain", do)
	}
	if !refused(heavy) || refused(light) {
		t.Errorf("requests are refused: heavy %t, light %t, want true, false", refused(heavy), refused(light))
	}
	if do := f.look(760, 0); !do.nothing() {
		t.Errorf("at 76 %% again: %+v", do)
	}
	if do := f.look(900, 200); do.sleep != "" {
		t.Errorf("at 90 %%, most of it garbage: %+v", do)
	}
	if do := f.look(900, 10); do.sleep != "heavy" {
		t.Errorf("at 90 %%: %+v, want that the heavy one sleeps", do)
	}
	if f.look(600, 0); refused(heavy) {
		t.Error("the strain is not ended")
	}
}

// L3: garbage collected for a strain does not put off the eviction: the process may be full by then.
func TestHostileAStrainDoesNotPutOffAnEviction(t *testing.T) {
	f := newFilled(map[string]*bounds.Account{"heavy": holding(300, 0)})
	if do := f.look(760, 0); len(do.strain) != 1 {
		t.Fatalf("at 76 %%: %+v", do)
	}
	f.now = f.now.Add(memoryLook - time.Minute)
	if do := f.look(900, 0); do.sleep != "heavy" {
		t.Errorf("at 90 %% a moment later: %+v, want that the heavy one sleeps", do)
	}
}

// L3: a space whose requests hold nothing any more is served, whatever else fills the process.
func TestHostileTheStrainOfASpaceThatHoldsNothingEnds(t *testing.T) {
	a := holding(200, 0)
	f := newFilled(map[string]*bounds.Account{"attacker": a})
	if f.look(760, 0); !refused(a) {
		t.Fatal("it is not under strain")
	}
	a.Add(bounds.MemoryBytes, -199*mib)
	if f.look(760, 0); refused(a) {
		t.Error("at 76 % it is under strain forever")
	}
}

// L3: who is put under strain depends on what requests hold: to refuse requests of a space with many objects frees nothing.
func TestHostileTheStrainIsOfTheSpaceWhoseRequestsHoldMost(t *testing.T) {
	large, attacker := holding(0, 300), holding(100, 0)
	f := newFilled(map[string]*bounds.Account{"attacker": attacker, "large": large})
	if f.look(760, 0); !refused(attacker) || refused(large) {
		t.Errorf("requests are refused: attacker %t, large %t, want true, false", refused(attacker), refused(large))
	}
}

// L3: where the end of no space would help, none is put to sleep for what others hold.
func TestHostileNoSpaceSleepsForWhatItDoesNotExplain(t *testing.T) {
	heavy, light, small := holding(0, 100), holding(5, 0), holding(1, 0)
	f := newFilled(map[string]*bounds.Account{"heavy": heavy, "light": light, "small": small})
	if do := f.look(900, 0); do.sleep != "" || !do.unexplained {
		t.Fatalf("at 90 %%, 10 %% of it the heaviest space's: %+v, want that nobody sleeps, and that it is said", do)
	}
	if refused(heavy) || !refused(light) || refused(small) {
		t.Errorf("requests are refused: heavy %t, light %t, small %t, want those of the one that holds something", refused(heavy), refused(light), refused(small))
	}
	if do := f.look(900, 0); do.unexplained {
		t.Error("it is said again and again")
	}
	light.Add(bounds.MemoryBytes, -5*mib)
	if f.look(900, 0); refused(light) {
		t.Error("the strain does not end when it holds nothing")
	}
	heavy.Add(bounds.StoreBytes, 100*mib)
	if do := f.look(900, 0); do.sleep != "heavy" {
		t.Errorf("at 90 %%, 20 %% of it the heaviest space's: %+v", do)
	}
}

// L3: as long as a space that is put to sleep still holds its memory, no other is.
func TestHostileOneEvictionIsAwaitedBeforeTheNext(t *testing.T) {
	f := newFilled(map[string]*bounds.Account{"next": holding(300, 0)})
	f.evicting = true
	if do := f.look(900, 0); !do.nothing() {
		t.Errorf("while another is stopping: %+v", do)
	}
	f.evicting = false
	if do := f.look(900, 0); do.sleep != "next" {
		t.Errorf("after that: %+v", do)
	}
}

func TestHostileTheGuardSeesASpaceThatIsStillStopping(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	p := &place{name: "evicted", state: stopping, since: clock.Now(), evicted: errMemory}
	s := &Shard{config: Config{Clock: clock}, places: map[string]*place{p.name: p}}
	if _, evicting := s.weights(); !evicting {
		t.Error("it is not seen")
	}
	p.since = p.since.Add(-evictionTimeout)
	if _, evicting := s.weights(); evicting {
		t.Error("a space that does not stop keeps the guard from its work")
	}
	p.since, p.evicted = clock.Now(), nil
	if _, evicting := s.weights(); evicting {
		t.Error("a space that goes to sleep by itself is taken for one that was evicted")
	}
}
