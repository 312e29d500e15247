// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crashlog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// T8, L3: the space that holds most memory is suspected first, however quiet it is and however busy all others are.
func TestHostileASpaceThatIsQuietButHoldsMemoryIsFoundAtOnce(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	names := []string{"quiet"}
	for i := range 40 {
		names = append(names, fmt.Sprintf("busy-%02d", i))
	}
	for end := range 3 {
		l := open(t, dir, clock)
		for _, name := range names {
			if h, held := l.Held(name); held != (end > 0 && name == "quiet") || h.Culprit > 0 {
				t.Fatalf("after %d ends %s is held back: %v, %+v", end, name, held, h)
			} else if !held {
				check(t, l.Started(name, clock.Now(), nil))
			}
		}
		if h, held := l.Held("quiet"); held {
			clock.Step(h.Wait + time.Second)
			check(t, l.Started("quiet", clock.Now(), &h))
		}
		clock.Step(20 * time.Second)
		for _, name := range names[1:] {
			l.Used(name)
		}
		check(t, l.Weigh(map[string]int64{"quiet": 150 << 20, "busy-00": 40 << 20, "busy-01": 1}))
	}
	l := open(t, dir, clock)
	if h, _ := l.Held("quiet"); h.Culprit != 1 {
		t.Errorf("it is %+v", h)
	}
	// What a process held that is gone says nothing about the next.
	if l = open(t, dir, clock); len(l.weights) > 0 {
		t.Errorf("there remain %v", l.weights)
	}
	if _, err := os.Stat(filepath.Join(dir, weightsFile)); !os.IsNotExist(err) {
		t.Errorf("there remains a file: %v", err)
	}
}

// T8: what holds little is not written: a process with idle spaces writes nothing.
func TestSmallWeightsAreNotWritten(t *testing.T) {
	dir, clock := t.TempDir(), clocktesting.NewFakeClock(time.Now())
	l := open(t, dir, clock)
	file := filepath.Join(dir, weightsFile)
	check(t, l.Weigh(map[string]int64{"a": leastWeight - 1}))
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	check(t, l.Weigh(map[string]int64{"a": leastWeight, "b": 1}))
	before, err := os.Stat(file)
	check(t, err)
	check(t, l.Weigh(map[string]int64{"a": leastWeight + 5}))
	after, err := os.Stat(file)
	check(t, err)
	if !os.SameFile(before, after) {
		t.Error("it is written although it is the same, to a MiB")
	}
	check(t, l.Weigh(nil))
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
	check(t, os.WriteFile(file, []byte(`{"a":`), 0o600)) // torn: nothing is known
	open(t, dir, clock)
}
