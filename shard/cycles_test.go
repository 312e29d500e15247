// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/internal/testhost"
)

// leakAllowed is what a cycle may leave on the heap, in bytes. Nothing should stay,
// but the host runs in the same process, and does work of its own. A control plane
// that stays is a hundred times as much.
const leakAllowed = 64 << 10

// batches are how often the cycles are measured. What the host does makes the heap
// grow in some of them; a leak does in each.
const batches = 3

// T8: cycles of sleep and wake leave no goroutine, no open file and no memory
// behind; nor do spaces that come and go. `make soak` does more of them.
func TestCyclesOfSleepAndWakeLeaveNothing(t *testing.T) {
	s := start(t, config(t))
	defer stop(t, s)
	client := virtual(t, startSpace(t, s, "cycles"))
	createDeployment(t, client)
	testhost.Eventually(t, "a pod runs", func(ctx context.Context) error { return samePods(ctx, t, client, "cycles", 1) })
	within := func(do func(context.Context, string) error, space string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
		defer cancel()
		if err := do(ctx, space); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("one space", func(t *testing.T) {
		leavesNothing(t, 10, 10, func(int) {
			within(s.Wake, "cycles")
			within(s.Sleep, "cycles")
		})
	})
	t.Run("many spaces", func(t *testing.T) {
		name := func(i int) string { return fmt.Sprintf("cycle-%d", i) }
		const spaces = 5
		for i := range spaces {
			build(t, name(i)) // what a space has on the host stays there
		}
		leavesNothing(t, 2*spaces, spaces, func(i int) {
			name := name(i % spaces)
			within(func(ctx context.Context, name string) error { _, err := s.StartSpace(ctx, name); return err }, name)
			within(s.Sleep, name)
			within(s.StopSpace, name)
		})
	})
}

// leavesNothing compares what is there after some cycles, when what is kept once
// for a process or in pools is there, with what is there after more of them.
func leavesNothing(t *testing.T, warm, cycles int, cycle func(int)) {
	t.Helper()
	for i := range warm {
		cycle(i)
	}
	files, ignored := openFiles(t), goleak.IgnoreCurrent()
	least := int64(math.MaxInt64)
	for range batches {
		heap := liveHeap()
		for i := range cycles {
			cycle(i)
		}
		grown := (int64(liveHeap()) - int64(heap)) / int64(cycles)
		t.Logf("each of %d cycles leaves %d KiB on a heap of %d KiB", cycles, grown>>10, heap>>10)
		least = min(least, grown)
	}
	settled(t, ignored)
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open, %d were before", now, files)
	}
	if least > leakAllowed {
		t.Errorf("each cycle leaves %d KiB or more on the heap", least>>10)
	}
}

func liveHeap() uint64 {
	var stats runtime.MemStats
	for range 3 { // finalizers and pools take turns
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("cannot count open files: %v", err)
	}
	return len(entries)
}
