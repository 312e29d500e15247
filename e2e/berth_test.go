// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// berth is a data directory with a `berth up` that runs on it.
type berth struct {
	dir string
	by  []string // the command that starts it, if it is another
	*process
}

func newBerth(dir string) *berth { return &berth{dir: dir} }

// start runs a `berth up` of the test's own until the test ends.
func start(t *testing.T, args ...string) *berth {
	t.Helper()
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(func() { // processes of dedicated spaces end, and write, a moment after the one that was killed
		_ = wait.PollUntilContextTimeout(context.Background(), interval, time.Minute, true, func(context.Context) (bool, error) {
			return os.RemoveAll(b.dir) == nil, nil
		})
	})
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.up(t, args...)
	return b
}

// up runs `berth up` on b's directory and returns once it serves.
func (b *berth) up(t *testing.T, args ...string) {
	t.Helper()
	b.launch(t, args...)
	b.awaitServing(t)
}

func (b *berth) awaitServing(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		select {
		case <-b.done:
			t.Fatalf("berth up ended: %v\n%s", b.state, b.output())
		default:
		}
		if !strings.Contains(b.stdout.String(), " serves at ") {
			return fmt.Errorf("berth up does not serve yet:\n%s", b.output())
		}
		return nil
	})
}

// launch runs `berth up` on b's directory and does not wait. It runs no operator unless args say so: most tests are about the
// platform alone, and count its spaces.
func (b *berth) launch(t *testing.T, args ...string) {
	t.Helper()
	if !slices.Contains(args, "--operator") {
		args = append([]string{"--operator=false"}, args...)
	}
	b.process = spawnBy(t, b.by, append([]string{"up", "--data-dir", b.dir, "--listen", "127.0.0.1:0"}, args...)...)
}

// stop asks berth to stop, and fails the test unless it does so cleanly.
func (b *berth) stop(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := b.Signal(signal); err != nil {
		t.Fatalf("signal berth: %v", err)
	}
	if code := b.exitsWithin(t, stopTimeout); code != 0 {
		t.Fatalf("berth ended with %d on %s, want 0:\n%s", code, signal, b.output())
	}
}

// crash ends berth as a power failure would, as far as a process can tell.
func (b *berth) crash(t *testing.T) {
	t.Helper()
	if err := b.Signal(syscall.SIGKILL); err != nil {
		t.Fatalf("kill berth: %v", err)
	}
	b.exitCode(t)
}

// end makes sure that nothing runs any more.
func (b *berth) end() {
	if b.process != nil {
		_ = b.Kill()
		<-b.done
	}
}

// space returns clients with all rights in a space of that name.
func (b *berth) space(t *testing.T, name string) *cluster {
	t.Helper()
	return newCluster(t, filepath.Join(b.dir, name+".kubeconfig"))
}

// demo is the space that `berth up` makes when none is named.
func (b *berth) demo(t *testing.T) *cluster {
	t.Helper()
	return b.space(t, "demo")
}

// host returns clients with all rights on the host cluster.
func (b *berth) host(t *testing.T) *cluster {
	t.Helper()
	return b.space(t, "host")
}

// logIfFailed shows the end of berth's log beside the failure of a test.
func (b *berth) logIfFailed(t *testing.T) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		log, err := os.ReadFile(filepath.Join(b.dir, "berth.log"))
		if err != nil {
			t.Logf("berth left no log: %v", err)
			return
		}
		lines := strings.Split(strings.TrimSpace(string(log)), "\n")
		const last = 40
		t.Logf("berth printed:\n%s\nlast lines of its log:\n%s", b.output(), strings.Join(lines[max(0, len(lines)-last):], "\n"))
	})
}
