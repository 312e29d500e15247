// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// limitedTo returns the command that gives a process, and what it becomes, so much memory: by a control group if this may
// make one, else by its own restraint alone.
func limitedTo(t *testing.T, bytes int64) []string {
	t.Helper()
	for root, file := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		group := filepath.Join(root, fmt.Sprintf("berth-e2e-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(group, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(group) }) // once nothing runs in it
		if _, err := os.Stat(filepath.Join(group, "cgroup.procs")); err != nil {
			continue // a directory like any other
		}
		if os.WriteFile(filepath.Join(group, file), []byte(strconv.FormatInt(bytes, 10)), 0o600) == nil {
			return []string{"sh", "-c", "echo $$ > " + group + "/cgroup.procs && exec \"$@\"", "sh"}
		}
	}
	t.Log("no control group can be made here: nothing ends a process that takes too much")
	return []string{"env", "GOMEMLIMIT=" + strconv.FormatInt(bytes, 10)}
}

// memory of a process: the most that it was seen to take.
type memory struct{ most atomic.Int64 }

// measure looks at a process's memory until the test ends.
func measure(t *testing.T, p *process) *memory {
	t.Helper()
	m := &memory{}
	done, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
			statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Pid))
			if fields := strings.Fields(string(statm)); err == nil && len(fields) > 1 {
				pages, _ := strconv.ParseInt(fields[1], 10, 64)
				m.most.Store(max(m.most.Load(), pages*int64(os.Getpagesize())))
			}
		}
	}()
	return m
}
