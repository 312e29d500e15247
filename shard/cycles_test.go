// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-dev/berth/internal/testhost"
)

// heapAllowed is what the heap may grow by over all cycles of a test, in bytes:
// the host runs in the same process, and one stopped control plane may still
// hang on to a timer. Were each cycle to leave one behind it would be ten times
// as much.
const heapAllowed = 24 << 20

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
		ctx, cancel := context.WithTimeout(t.Context(), testhost.Patience)
		defer cancel()
		if err := do(ctx, space); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("one space", func(t *testing.T) {
		leavesNothing(t, 10, 30, func(int) {
			within(s.Wake, "cycles")
			within(s.Sleep, "cycles")
		})
	})
	t.Run("many spaces", func(t *testing.T) {
		name := func(i int) string { return fmt.Sprintf("cycle-%d", i) }
		for i := range 15 {
			build(t, name(i)) // what a space has on the host stays there
		}
		leavesNothing(t, 5, 10, func(i int) {
			name := name(i)
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
	files, heap, ignored := openFiles(t), liveHeap(), goleak.IgnoreCurrent()
	for i := range cycles {
		cycle(warm + i)
	}
	settled(t, ignored)
	if now := openFiles(t); now > files {
		t.Errorf("%d files are open, %d were before", now, files)
	}
	grown := int64(liveHeap()) - int64(heap)
	t.Logf("over %d cycles the heap of %d KiB grew by %d KiB", cycles, heap>>10, grown>>10)
	if grown > heapAllowed {
		t.Errorf("%d cycles leave %d KiB on the heap", cycles, grown>>10)
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
