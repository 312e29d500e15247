// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package probe

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// The race detector keeps a shadow of all memory, which is not given back.
func TestAFootprintSeesMemoryThatIsHeldAndNotWhatWasFreed(t *testing.T) {
	const mib = 64
	before := now(t)
	during := holding(t, mib)
	debug.FreeOSMemory()
	after := now(t)
	for what, more := range map[string]float64{"RSS": during.Minus(before, 1).RSSMiB, "heap": during.Minus(before, 1).HeapMiB} {
		if more < 0.9*mib {
			t.Errorf("holding %d MiB added %.1f MiB of %s", mib, more, what)
		}
	}
	for what, more := range map[string]float64{"RSS": after.Minus(before, 1).RSSMiB, "heap": after.Minus(before, 1).HeapMiB} {
		if more > 0.5*mib {
			t.Errorf("%.1f MiB of %s are still counted after %d MiB were freed", more, what, mib)
		}
	}
}

func holding(t *testing.T, mib int) Footprint {
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	defer runtime.KeepAlive(held)
	return now(t)
}
