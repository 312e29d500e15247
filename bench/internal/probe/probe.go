// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package probe reads what this process costs: memory, goroutines and CPU. It works on Linux only.
//
// The bench command's children call it on themselves, so that no measuring process is part of the figure.
package probe

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Footprint is what a process at rest costs.
type Footprint struct {
	// RSSMiB is the resident set in MiB, after a garbage collection has given free memory back to the system.
	RSSMiB float64
	// Goroutines counts all of the process's goroutines.
	Goroutines float64
	// CPUCores is the user and system time used per second of wall time.
	CPUCores float64
}

// Timing says how long Rest waits and watches.
type Timing struct {
	// Settle is how long a process is left alone before it counts as at rest: hooks and first syncs run in it.
	Settle time.Duration
	// Watch is how long CPU use is averaged over.
	Watch time.Duration
}

// Rest lets the process come to rest and measures it. It returns early, with an error, if ctx ends.
func Rest(ctx context.Context, timing Timing) (Footprint, error) {
	if err := wait(ctx, timing.Settle); err != nil {
		return Footprint{}, err
	}
	cores, err := cpuOver(ctx, timing.Watch)
	if err != nil {
		return Footprint{}, err
	}
	// Twice: what finalizers release in the first collection is free only after the second.
	runtime.GC()
	debug.FreeOSMemory()
	rss, err := rssMiB()
	if err != nil {
		return Footprint{}, err
	}
	return Footprint{RSSMiB: rss, Goroutines: float64(runtime.NumGoroutine()), CPUCores: cores}, nil
}

// Minus returns the difference of two footprints, split over n.
func (f Footprint) Minus(before Footprint, n int) Footprint {
	return Footprint{
		RSSMiB:     (f.RSSMiB - before.RSSMiB) / float64(n),
		Goroutines: (f.Goroutines - before.Goroutines) / float64(n),
		CPUCores:   (f.CPUCores - before.CPUCores) / float64(n),
	}
}

func rssMiB() (float64, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, fmt.Errorf("open this process in procfs: %w", err)
	}
	status, err := self.NewStatus()
	if err != nil {
		return 0, fmt.Errorf("read this process's status: %w", err)
	}
	return float64(status.VmRSS) / (1 << 20), nil
}

func cpuOver(ctx context.Context, d time.Duration) (float64, error) {
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
