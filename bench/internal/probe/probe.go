// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe reads what this process costs: memory, goroutines, files and CPU. It works on Linux only.
//
// The bench command's children call it on themselves, so that no measuring process is part of the figure.
package probe

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Footprint is what a process at rest costs.
type Footprint struct {
	// RSSMiB is the resident set in MiB.
	RSSMiB float64
	// FreedRSSMiB is the resident set in MiB after all free memory has been given back to the system by force.
	FreedRSSMiB float64
	// HeapMiB is what the last garbage collection found alive, in MiB.
	HeapMiB float64
	// UnusedMiB is the rest of the pages that something lives in, in MiB.
	UnusedMiB float64
	// StackMiB is the memory of the goroutines' stacks in MiB.
	StackMiB float64
	// Goroutines counts all of the process's goroutines.
	Goroutines float64
	// Files counts the process's open file descriptors.
	Files float64
	// Steady says that the process had come to rest when it was measured.
	Steady bool
}

// Minus returns the difference of two footprints, split over n.
func (f Footprint) Minus(before Footprint, n int) Footprint {
	each := func(after, before float64) float64 { return (after - before) / float64(n) }
	return Footprint{
		RSSMiB:      each(f.RSSMiB, before.RSSMiB),
		FreedRSSMiB: each(f.FreedRSSMiB, before.FreedRSSMiB),
		HeapMiB:     each(f.HeapMiB, before.HeapMiB),
		UnusedMiB:   each(f.UnusedMiB, before.UnusedMiB),
		StackMiB:    each(f.StackMiB, before.StackMiB),
		Goroutines:  each(f.Goroutines, before.Goroutines),
		Files:       each(f.Files, before.Files),
		Steady:      f.Steady && before.Steady,
	}
}

// Rest waits until the process is at rest, at most for limit, and measures it. It returns early, with an error, if ctx ends.
func Rest(ctx context.Context, limit time.Duration) (f Footprint, err error) {
	steady, err := settle(ctx, limit)
	if err != nil {
		return Footprint{}, err
	}
	if f, err = Now(); err != nil {
		return Footprint{}, err
	}
	f.Steady = steady
	debug.FreeOSMemory()
	f.FreedRSSMiB, _, err = resident()
	return f, err
}

// Now measures the process as it is, all but FreedRSSMiB.
func Now() (Footprint, error) {
	rss, files, err := resident()
	if err != nil {
		return Footprint{}, err
	}
	collect()
	memory := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	metrics.Read(memory)
	mib := func(i int) float64 { return float64(memory[i].Value.Uint64()) / (1 << 20) }
	return Footprint{
		RSSMiB: rss, HeapMiB: mib(0), StackMiB: mib(1), UnusedMiB: mib(2),
		Goroutines: float64(runtime.NumGoroutine()), Files: float64(files),
	}, nil
}

// collect frees what is garbage. Twice: what finalizers and pools release in the first collection is free only after the second.
func collect() {
	runtime.GC()
	runtime.GC()
}

func resident() (rssMiB float64, files int, err error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, 0, fmt.Errorf("open this process in procfs: %w", err)
	}
	status, err := self.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("read this process's status: %w", err)
	}
	if files, err = self.FileDescriptorsLen(); err != nil {
		return 0, 0, fmt.Errorf("count this process's files: %w", err)
	}
	return float64(status.VmRSS) / (1 << 20), files, nil
}

// Peak returns the largest resident set of this process since Peak was called before, in MiB.
func Peak() (mib float64, err error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, fmt.Errorf("open this process in procfs: %w", err)
	}
	status, err := self.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read this process's status: %w", err)
	}
	// proc_pid_clear_refs(5): 5 sets the peak to what is resident now.
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return 0, fmt.Errorf("begin a new peak of resident memory: %w", err)
	}
	return float64(status.VmHWM) / (1 << 20), nil
}

// CPU returns the user and system time used per second of real time, over d.
func CPU(ctx context.Context, d time.Duration) (cores float64, err error) {
	start := time.Now()
	before, err := cpuTime()
	if err != nil {
		return 0, err
	}
	if err := wait(ctx, d); err != nil {
		return 0, err
	}
	after, err := cpuTime()
	if err != nil {
		return 0, err
	}
	return (after - before).Seconds() / time.Since(start).Seconds(), nil
}

func cpuTime() (time.Duration, error) {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		return 0, fmt.Errorf("read this process's CPU time: %w", err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano()), nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
