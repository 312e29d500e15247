// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestRestSeesMemoryThatIsHeldAndNotWhatWasFreed(t *testing.T) {
	timing := Timing{Watch: 10 * time.Millisecond}
	const mib = 64
	before, err := Rest(t.Context(), timing)
	if err != nil {
		t.Fatal(err)
	}
	during, err := restHolding(t, timing, mib)
	if err != nil {
		t.Fatal(err)
	}
	after, err := Rest(t.Context(), timing)
	if err != nil {
		t.Fatal(err)
	}
	if more := during.Minus(before, 1).RSSMiB; more < 0.9*mib {
		t.Errorf("holding %d MiB added %.1f MiB", mib, more)
	}
	if more := after.Minus(before, 1).RSSMiB; more > 0.5*mib {
		t.Errorf("%.1f MiB are still counted after %d MiB were freed", more, mib)
	}
}

func restHolding(t *testing.T, timing Timing, mib int) (Footprint, error) {
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	defer runtime.KeepAlive(held)
	return Rest(t.Context(), timing)
}

func TestRestSeesABusyCPUAndGoroutines(t *testing.T) {
	timing := Timing{Watch: 200 * time.Millisecond}
	idle, err := Rest(t.Context(), timing)
	if err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			runtime.Gosched()
		}
	}()
	busy, err := Rest(t.Context(), timing)
	stop.Store(true)
	<-done
	if err != nil {
		t.Fatal(err)
	}
	// A machine shared with other work gives a busy loop less than a core; an idle process would show next to nothing.
	if more := busy.Minus(idle, 1); more.CPUCores < 0.1 || more.Goroutines != 1 {
		t.Errorf("one busy goroutine added %.3f cores and %v goroutines", more.CPUCores, more.Goroutines)
	}
}

func TestRestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Rest(ctx, Timing{Settle: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("Rest of a cancelled context = %v, want it to end at once", err)
	}
}
