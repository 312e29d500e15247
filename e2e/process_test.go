// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// exitTimeout is how long a process may take to end by itself. Commands have shorter limits of their own, and so has a shard that moves its
	// spaces away first.
	exitTimeout = 2 * testTimeout
	// stopTimeout is how long `berth up` may take that was told to end. It bounds that itself by less.
	stopTimeout = 45 * time.Second
)

// process is a berth command that runs, or ran.
type process struct {
	*os.Process
	stdout, stderr buffer
	done           chan struct{}
	state          *os.ProcessState // once done is closed
}

// spawn runs berth with args.
func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	return spawnBy(t, nil, args...)
}

// spawnBy runs berth with args by a command that ends in becoming berth, if there is one.
func spawnBy(t *testing.T, by []string, args ...string) *process {
	t.Helper()
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	p := &process{done: make(chan struct{})}
	command := slices.Concat(by, []string{suite().command("berth")}, args)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	cmd.Env = append(os.Environ(), "HOME="+suite().dir, "KUBECONFIG=")
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The parent whose death ends the process is, to Linux, this thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		p.Process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // its error is in the state
			p.state = cmd.ProcessState
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("run berth %s: %v", strings.Join(args, " "), err)
	}
	return p
}

// exitCode waits for the process to end.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	return p.exitsWithin(t, exitTimeout)
}

func (p *process) exitsWithin(t *testing.T, limit time.Duration) (code int) {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-p.done:
		return p.state.ExitCode()
	case <-timeout.C:
		_ = p.Signal(syscall.SIGQUIT) // its goroutines go to stderr
		t.Fatalf("berth runs on after %s; it printed:\n%s", limit, p.output())
		return -1
	}
}

func (p *process) output() string { return p.stdout.String() + p.stderr.String() }

// berth runs a berth command that ends by itself, and returns what it printed.
func runBerth(t *testing.T, args ...string) (stdout, stderr string, exitCode int) {
	t.Helper()
	p := spawn(t, args...)
	exitCode = p.exitCode(t)
	return p.stdout.String(), p.stderr.String(), exitCode
}

// configured returns the flag that names a configuration file with the fields, in YAML.
func configured(t *testing.T, fields string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: config.berth.dev/v1alpha1\nkind: PlatformConfiguration\n"+fields+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--config=" + path
}

// buffer is a [bytes.Buffer] that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
