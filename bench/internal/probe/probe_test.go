// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func now(t *testing.T) Footprint {
	t.Helper()
	f, err := Now()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAFootprintCountsGoroutinesAndFiles(t *testing.T) {
	before := now(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stop := make(chan struct{})
	defer close(stop)
	go func() { <-stop }()
	if more := now(t).Minus(before, 1); more.Goroutines != 1 || more.Files != 1 {
		t.Errorf("a goroutine and a file added %v goroutines and %v files", more.Goroutines, more.Files)
	}
}

func TestCPUSeesABusyLoop(t *testing.T) {
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			runtime.Gosched()
		}
	}()
	busy, err := CPU(t.Context(), 200*time.Millisecond)
	stop.Store(true)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	// A machine shared with other work gives a busy loop less than a core; an idle process would show next to nothing.
	if busy < 0.1 {
		t.Errorf("a busy loop used %.3f cores", busy)
	}
}

func TestAProcessThatNeverComesToRestIsMeasuredWhenTimeIsUp(t *testing.T) {
	f, err := Rest(t.Context(), settlePoll)
	if err != nil {
		t.Fatal(err)
	}
	if f.Steady || f.RSSMiB == 0 || f.FreedRSSMiB == 0 {
		t.Errorf("after one look: steady: %t, RSS %v MiB, freed %v MiB", f.Steady, f.RSSMiB, f.FreedRSSMiB)
	}
}

func TestSteadyIsWhatHasNotMovedForTheWholeWindow(t *testing.T) {
	flat := make([]float64, settleWindow)
	for i := range flat {
		flat[i] = 1000
	}
	for name, c := range map[string]struct {
		values []float64
		want   bool
	}{
		"nothing seen yet":                 {nil, false},
		"too few looks":                    {flat[1:], false},
		"flat":                             {flat, true},
		"flat after it moved":              {append([]float64{1}, flat...), true},
		"a little more at the end":         {append(flat[:settleWindow:settleWindow], 1004), true},
		"more at the end than is measured": {append(flat[:settleWindow:settleWindow], 1010), false},
		"none of it":                       {make([]float64, settleWindow), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isSteady(c.values); got != c.want {
				t.Errorf("isSteady(%v) = %t, want %t", c.values, got, c.want)
			}
		})
	}
}

func TestRestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Rest(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("Rest of a cancelled context = %v, want it to end at once", err)
	}
}
