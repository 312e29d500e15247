// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// hardLimit ends a process that an attack makes grow, before the machine suffers.
	hardLimit = 6 << 30
	// smallProcess is the most memory in bytes that a process under attack may ever use.
	smallProcess = 1536 << 20
)

// startLimited is [start] of a process that ends if it asks for more than
// hardLimit bytes of data.
func startLimited(t *testing.T, args ...string) *berth {
	t.Helper()
	b := newBerth(t.TempDir() + "/data")
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.launch(t, args...)
	if err := unix.Prlimit(b.Pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: hardLimit, Max: hardLimit}, nil); err != nil {
		t.Fatalf("limit the memory of berth: %v", err)
	}
	b.awaitServing(t)
	return b
}

// checkSmall fails the test if the process has ended, or was ever large.
func (b *berth) checkSmall(t *testing.T) {
	t.Helper()
	select {
	case <-b.done:
		out := b.output()
		t.Fatalf("berth up ended: %v\n%s", b.state, out[:min(len(out), 2000)])
	default:
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(status) {
		var peak int
		if n, _ := fmt.Sscanf(strings.TrimSpace(string(line)), "VmHWM: %d kB", &peak); n == 1 {
			t.Logf("berth used at most %d MiB", peak>>10)
			if peak<<10 > smallProcess {
				t.Errorf("berth used %d MiB, more than %d", peak>>10, smallProcess>>20)
			}
			return
		}
	}
	t.Fatalf("no VmHWM in\n%s", status)
}
