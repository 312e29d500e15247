// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crashlog

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
)

func open(t testing.TB, dir string, clock *clocktesting.FakeClock) *Log {
	t.Helper()
	l, err := Open(dir, clock)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// T8: a clean stop leaves nobody suspected.
func TestACleanStopLeavesNoSuspect(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	l := open(t, dir, clock)
	for _, name := range []string{"a", "b"} {
		check(t, l.Started(name, clock.Now(), nil))
		l.Used(name)
	}
	for _, name := range []string{"a", "b"} {
		check(t, l.Stopped(name))
	}
	files, err := os.ReadDir(dir)
	check(t, err)
	if len(files) != 1 || files[0].Name() != beganFile {
		t.Errorf("there remain %v", files)
	}
	l = open(t, dir, clock)
	for _, name := range []string{"a", "b"} {
		if _, held := l.Held(name); held {
			t.Errorf("%s is held back", name)
		}
	}
}

// T8: of those that were active, the one that was busy and started last is held
// back first; a trial that it doesn't survive, sure of the others, convicts it.
func TestASpaceThatEndsTheProcessAgainAndAgainIsTheCulprit(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	names := []string{"bad", "busy", "idle", "late"}
	l := open(t, dir, clock)
	for _, name := range []string{"busy", "idle", "bad"} {
		check(t, l.Started(name, clock.Now(), nil))
		clock.Step(time.Second)
	}
	check(t, l.Started("late", clock.Now(), nil))
	clock.Step(time.Minute)
	l.Used("busy")
	clock.Step(time.Second)
	l.Used("bad")

	var waits []time.Duration
	for end := 1; end <= 9; end++ {
		l = open(t, dir, clock)
		for _, name := range names {
			if _, held := l.Held(name); held != (name == "bad") {
				t.Fatalf("after %d ends %s is held back: %v", end, name, held)
			}
			if name != "bad" {
				check(t, l.Started(name, clock.Now(), nil))
			}
		}
		h, _ := l.Held("bad")
		if want := max(0, end-2); h.Culprit != want || h.Sure != (end > 1) {
			t.Fatalf("after %d ends it is %+v", end, h)
		}
		waits = append(waits, h.Wait)
		clock.Step(h.Wait + time.Second)
		check(t, l.Started("bad", clock.Now(), &h))
		l.Used("busy")
	}
	want := []time.Duration{0, 10 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 600 * time.Second}
	if !slices.Equal(waits, want) {
		t.Errorf("it is held back for %v, want %v", waits, want)
	}

	// It survives, and so do all others.
	l = open(t, dir, clock)
	h, _ := l.Held("bad")
	check(t, l.Started("bad", clock.Now(), &h))
	clock.Step(h.Trial)
	check(t, l.Survived("bad"))
	if _, held := l.Held("bad"); held {
		t.Error("it is held back after its trial")
	}
	clock.Step(clearedAfter)
	check(t, l.Clear())
	if r := l.spaces["bad"].record; r.Suspect != (Suspect{}) || !r.Running {
		t.Errorf("it is %+v", r)
	}
}

// T8: what was not active when the process ended did not end it. But a culprit
// isn't cleared by what another does.
func TestASuspectThatWasNotActiveIsCleared(t *testing.T) {
	now := time.Now()
	suspects, held := judge(map[string]record{
		"held":    {Suspect: Suspect{Active: 2}},
		"culprit": {Suspect: Suspect{Active: 1, Culprit: 3}},
		"other":   {Running: true, Suspect: Suspect{Active: 2}, Since: now, used: now},
	}, now.Add(-20*time.Second))
	if _, ok := suspects["held"]; ok {
		t.Error("a suspect that did not run is suspected")
	}
	if h, ok := held["culprit"]; !ok || h.Wait != 40*time.Second {
		t.Errorf("the culprit is held back: %v, %+v", ok, h)
	}
	if h, ok := held["other"]; !ok || h.Wait != 40*time.Second || !h.Sure || h.Active != 3 {
		t.Errorf("the other is held back: %v, %+v", ok, h)
	}
}

// T8: whatever is left on disk, nothing breaks: what can't be read is of a space
// that was active.
func TestARecordThatCannotBeReadIsOfAnActiveSpace(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	check(t, os.WriteFile(filepath.Join(dir, "torn.json"), []byte(`{"runn`), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "half.json.tmp"), []byte(`{"runn`), 0o600))
	check(t, os.WriteFile(filepath.Join(dir, "huge.json"), []byte(`{"running":true,"suspect":{"Active":1000000000,"Culprit":1000000000}}`), 0o600))
	l := open(t, dir, clock)
	if h, held := l.Held("huge"); !held || h.Trial != lastTrial {
		t.Errorf("it is held back: %v, %+v", held, h)
	}
	if _, known := l.spaces["torn"]; !known {
		t.Error("what was torn is not suspected")
	}
	if _, known := l.spaces["half"]; known {
		t.Error("what was never noted is suspected")
	}
}

// T8: whichever of many spaces ends the process some time after it started, it is
// found after few ends, and no other space is taken for it. Twice as many spaces are
// held back after each end, and the culprit among them is found within two more; so
// log2 of their number is enough. Only if all are busy whenever it ends, and the
// culprit is always the least suspicious, that is not the end: as no more than half
// are held back, the rest is halved each time.
func TestTheCulpritAmongManyIsFoundAfterFewEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slot = 300 * time.Millisecond // a start
		count := rapid.IntRange(1, 100).Draw(t, "spaces")
		killsAfter := time.Duration(rapid.IntRange(0, 29).Draw(t, "kills after")) * time.Second
		alike := rapid.Bool().Draw(t, "all are busy")
		bad := rapid.IntRange(0, count-1).Draw(t, "culprit")
		name := func(i int) string { return fmt.Sprintf("space-%02d", i) }
		left, now := map[string]record{}, time.Unix(1e9, 0)
		began := now
		for i := range count {
			left[name(i)] = record{Running: true, Since: now, used: now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "used")) * time.Second)}
		}
		for ends := 1; ; ends++ {
			suspects, held := judge(left, began)
			for other, s := range suspects {
				if s.Culprit > 0 && other != name(bad) {
					t.Fatalf("after %d ends %s is taken for the culprit", ends, other)
				}
			}
			if suspects[name(bad)].Culprit > 0 {
				return
			}
			limit := 3 + bits.Len(uint(count))
			if alike {
				limit = 2 + 2*bits.Len(uint(count))
			}
			if ends > limit {
				t.Fatalf("not found after %d ends, want %d at most", ends, limit)
			}
			now = now.Add(time.Hour)
			began = now
			left = map[string]record{}
			for other, s := range suspects {
				left[other] = record{Suspect: s}
			}
			// Those that are not held back start first, then the others, one after the other.
			start := func(other string, trial *Held) {
				now = now.Add(slot)
				left[other] = record{Running: true, Since: now, Suspect: suspects[other], Trial: trial != nil, Sure: trial != nil && trial.Sure}
			}
			var dies time.Time
			for _, i := range rapid.Permutation(slices.Collect(func(yield func(int) bool) {
				for i := range count {
					if !yield(i) {
						return
					}
				}
			})).Draw(t, "order") {
				if _, back := held[name(i)]; !back {
					start(name(i), nil)
					if i == bad {
						dies = now.Add(killsAfter)
					}
				}
			}
			order := make([]string, len(held))
			for other, h := range held {
				order[h.Rank] = other
			}
			died := func(at time.Time) bool { return !dies.IsZero() && dies.Before(at) }
			for len(order) > 0 {
				h := held[order[0]]
				if at := began.Add(h.Wait); at.After(now) {
					now = at
				}
				group := order
				if next := slices.IndexFunc(order, func(other string) bool { return held[other].Group != h.Group }); next > 0 {
					group = order[:next]
				}
				order = order[len(group):]
				var tried []string
				for _, other := range group {
					if died(now.Add(slot)) {
						break
					}
					h := held[other]
					start(other, &h)
					tried = append(tried, other)
					if other == name(bad) {
						dies = now.Add(killsAfter)
					}
				}
				if died(now.Add(h.Trial)) {
					break
				}
				now = now.Add(h.Trial)
				for _, other := range tried {
					r := left[other]
					r.Trial, r.Sure = false, false
					left[other] = r
				}
			}
			now = dies
			for other, r := range left {
				if r.Running {
					idle := rapid.IntRange(0, 20).Draw(t, "idle")
					if alike || other == name(bad) {
						idle %= 3 // it did something, to end the process or otherwise
					}
					r.used = now.Add(-time.Duration(idle) * time.Second)
					if r.used.Before(r.Since) {
						r.used = r.Since
					}
					left[other] = r
				}
			}
		}
	})
}

// S1: a crash loop that no space caused, say of a machine that is too small, keeps no space waiting for long.
func TestHostileACrashLoopThatNoSpaceCausedHoldsNoneBackForLong(t *testing.T) {
	left, began := map[string]record{}, time.Unix(1e9, 0)
	for i := range 250 {
		left[fmt.Sprintf("space-%03d", i)] = record{Running: true, Since: began, used: began.Add(10 * time.Minute)}
	}
	left["a-culprit"] = record{Suspect: Suspect{Culprit: 9}}
	for end := range 30 {
		suspects, held := judge(left, began)
		var most time.Duration // that one of them waits
		var innocents int
		groups := map[int]time.Duration{}
		for name, h := range held {
			if h.Culprit > 0 {
				if name != "a-culprit" || h.Rank != len(held)-1 {
					t.Fatalf("after %d ends %s is held back: %+v", end+1, name, h)
				}
				continue
			}
			innocents++
			most = max(most, h.Wait)
			groups[h.Group] = max(groups[h.Group], h.Trial)
		}
		if innocents > len(left)/2 {
			t.Fatalf("after %d ends %d of %d are held back", end+1, innocents, len(left))
		}
		for _, trial := range groups { // one after the other
			most += trial
		}
		if most > 10*time.Minute {
			t.Fatalf("after %d ends an innocent waits for up to %s", end+1, most)
		}
		for name, r := range left {
			r.Suspect = suspects[name]
			left[name] = r
		}
	}
}

// T8: what is odd on disk, or can't be written, is reported, and keeps nothing from working.
func TestHostileALogThatIsOddIsOpenedAllTheSame(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	check(t, os.WriteFile(filepath.Join(dir, "ran.json"), []byte(`{"running":true}`), 0o600))
	check(t, os.MkdirAll(filepath.Join(dir, "odd.json", "within"), 0o700))
	check(t, os.MkdirAll(filepath.Join(dir, "ran.json.tmp"), 0o700)) // it can't be written
	l, err := Open(dir, clock)
	if err == nil || l == nil {
		t.Fatalf("%v, %v, want a log and what is wrong with it", l, err)
	}
	if _, held := l.Held("ran"); !held {
		t.Error("the space that ran is not suspected")
	}
	check(t, l.Started("other", clock.Now(), nil))
	file := filepath.Join(dir, "ran.json", "below")
	if l, err = Open(file, clock); err == nil || l == nil {
		t.Fatalf("below a file: %v, %v", l, err)
	}
	if _, held := l.Held("ran"); held {
		t.Error("without a directory something is suspected")
	}
	if l.Started("other", clock.Now(), nil) == nil {
		t.Error("it is said that it was noted")
	}
}

// T7: nothing is left of a space that is deleted, and one of its name is no suspect.
func TestASpaceThatIsDeletedIsForgotten(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	check(t, open(t, dir, clock).Started("deleted", clock.Now(), nil)) // and the process ends
	l := open(t, dir, clock)
	if _, held := l.Held("deleted"); !held {
		t.Fatal("it is no suspect before")
	}
	check(t, l.Forget("deleted"))
	if _, held := l.Held("deleted"); held {
		t.Error("it is a suspect still")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*deleted*")); err != nil || len(left) > 0 {
		t.Errorf("it left %q (%v)", left, err)
	}
	if _, held := open(t, dir, clock).Held("deleted"); held {
		t.Error("it is one in the next run")
	}
}
