// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/shard"
)

// servedWithin is how soon after a restart spaces answer that did not cause it. On
// a machine where any start takes longer, it is twice as long as that takes.
const servedWithin = 5 * time.Second

// T8, S1: a space ends the process each time that it is awake, and a supervisor
// starts it again. The test kills the process: that is how each fault ends that no
// bound has caught. The other spaces answer soon, and go on to.
func TestHostileASpaceThatEndsTheProcessIsHeldBackForTheOthers(t *testing.T) {
	host := filepath.Join(sharedBerth(t).dir, "host.kubeconfig")
	calm := []string{"calm-a", "calm-b", "calm-c"}
	args := []string{
		"--host-kubeconfig", host, "--listen", freeAddress(t), "--idle-after", "0",
		"--space", strings.Join(append(calm, "fatal"), ","),
	}
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	b.logIfFailed(t)
	b.up(t, args...)
	clients := map[string]*cluster{}
	for _, name := range append(calm, "fatal") {
		clients[name] = b.space(t, name)
	}
	answers := func(name string) error {
		return clients[name].CoreV1().RESTClient().Get().Resource("namespaces").MaxRetries(0).Timeout(testTimeout).Do(t.Context()).Error()
	}
	dies := func() {
		t.Helper()
		eventually(t, func() error {
			status := b.statuses(t)
			if status["fatal"].Reason != shard.ReasonRunning {
				return fmt.Errorf("it is %s: %s", status["fatal"].Reason, status["fatal"].Message)
			}
			if err := b.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-b.done
			for _, name := range calm {
				if status[name].Reason != shard.ReasonRunning {
					t.Errorf("the space that ends the process is started while %s is %s", name, status[name].Reason)
				}
			}
			return nil
		})
	}
	// serve waits until the spaces answer that do no harm.
	serve := func(limit time.Duration) (took time.Duration) {
		t.Helper()
		began := time.Now()
		b.launch(t, args...)
		for _, name := range calm {
			err := answers(name)
			for ; err != nil && time.Since(began) < limit; err = answers(name) {
				select {
				case <-time.After(10 * time.Millisecond):
				case <-b.done:
					t.Fatalf("berth ended: %s", b.output())
				}
			}
			if err != nil {
				t.Fatalf("%s after the restart, %s answers %v", limit, name, err)
			}
		}
		return time.Since(began)
	}
	b.stop(t, syscall.SIGTERM)
	usual := serve(testTimeout)
	limit := max(servedWithin, 2*usual)
	dies()
	b.launch(t, args...)
	dies() // it starts last

	// From now on it is held back, first until it is clear that it is not the others.
	backoffs := []time.Duration{0, 10 * time.Second, 20 * time.Second}
	for round := range backoffs {
		began := time.Now()
		refused := make(chan error, 1)
		refusal := func() { // asked from the start: where all is slow, it is soon tried again
			for {
				err := answers("fatal")
				if err == nil || apierrors.IsServiceUnavailable(err) {
					refused <- err
					return
				}
				select {
				case <-time.After(interval):
				case <-t.Context().Done():
					return
				}
			}
		}
		go refusal()
		t.Logf("restart %d: the others answer after %s, usually %s", round, serve(limit), usual)
		err := <-refused
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Details == nil || status.ErrStatus.Details.RetryAfterSeconds < 1 || !strings.Contains(err.Error(), "held back") {
			t.Errorf("the space that is held back answers %v", err)
		}
		// They go on, until it is tried again.
		for b.statuses(t)["fatal"].Reason == shard.ReasonCrashSuspect {
			for _, name := range calm {
				if err := answers(name); err != nil {
					t.Errorf("%s answers %v", name, err)
				}
			}
		}
		if held := time.Since(began); held < backoffs[round] {
			t.Errorf("round %d: it was held back for %s, want at least %s", round, held, backoffs[round])
		}
		dies()
	}

	// It says so itself.
	b.launch(t, args...)
	eventually(t, func() error {
		if b.statuses(t)["fatal"].Reason == "" {
			return errors.New("berth does not answer yet")
		}
		return nil
	})
	state, message := b.stateOf(t, "fatal")
	if state != shard.ReasonCrashSuspect || !strings.Contains(message, "ended unexpectedly") {
		t.Errorf("berth spaces says that it is %s: %s", state, message)
	}
	t.Logf("berth spaces: %s", message)
}

// statuses are the conditions Ready of all spaces; none before berth can tell.
func (b *berth) statuses(t *testing.T) map[string]metav1.Condition {
	t.Helper()
	out := map[string]metav1.Condition{}
	client := b.socket()
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://berth/spaces")
	if err != nil {
		return out
	}
	defer resp.Body.Close()
	var list []shard.Status
	if json.NewDecoder(resp.Body).Decode(&list) != nil {
		return out // it is about to serve them
	}
	for _, s := range list {
		out[s.Name] = s.Conditions[0]
	}
	return out
}
