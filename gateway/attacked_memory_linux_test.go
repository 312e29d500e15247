// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limitData limits the data of this process, in bytes.
func limitData(most uint64) { _ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: most, Max: most}) }

// memory returns what the process has in memory now, and the most that it ever had, in bytes.
func (a *attacked) memory(t *testing.T) (now, most int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.pid))
	if err != nil {
		t.Fatalf("the process has ended: %v", err)
	}
	for line := range bytes.Lines(status) {
		_, _ = fmt.Sscanf(strings.TrimSpace(string(line)), "VmRSS: %d kB", &now)
		_, _ = fmt.Sscanf(strings.TrimSpace(string(line)), "VmHWM: %d kB", &most)
	}
	return now << 10, most << 10
}

// survives fails the test if the process has ended, doesn't serve others, or had ever more than most bytes in memory.
func (a *attacked) survives(t *testing.T, most int) {
	t.Helper()
	select {
	case <-a.ended:
		t.Fatal("the process has ended")
	default:
	}
	conn, err := a.connect("127.0.0.201", "http/1.1")
	if err != nil {
		t.Fatalf("another tenant, after the attack: %v", err)
	}
	defer conn.Close()
	if code, err := ask(conn, "of-bob", "/api/v1/pods"); err != nil || code != http.StatusOK {
		t.Errorf("another tenant, after the attack: %d, %v", code, err)
	}
	_, had := a.memory(t)
	t.Logf("the process had at most %d MiB", had>>20)
	if had > most {
		t.Errorf("the process had %d MiB, more than %d", had>>20, most>>20)
	}
}
